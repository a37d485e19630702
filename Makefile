# Two targets do everything, the set-up included: "make bench" and "make test". See README.md.
#
# Every recipe runs in a PID namespace of its own (setup/contained.sh), so that nothing outlives make, kill -9 included.
SHELL := $(CURDIR)/setup/contained.sh
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: help bench test check unit pytest upstream-smoke system-smoke system system-long system-load system-hosts build lock clean upstream upstream-all series-check archive jmh jmh-full

# Version of Kafka: KAFKA=4.2.1 make build
ifdef KAFKA
export RACKGATE_KAFKA := $(KAFKA)
endif

PYTHON ?= python3.11
VENV := .venv
DUCKTAPE_VENV := .venv-ducktape
BIN := $(VENV)/bin

help:
	@echo "make bench   build the patched Kafka, run the benchmark with a rack outage, write out/bench/index.html"
	@echo "make bench-full   twelve cells of state, link, load and client (100 minutes; continues where it was interrupted)"
	@echo "make bench-tail   the 99th percentile on nearby links (some 50 minutes; likewise)"
	@echo "make bench-outages racks killed, cut off and destroyed, several times each: what each arm acknowledges (ten minutes)"
	@echo "make bench-returned  acks=all while a returned rack catches up, on stock Kafka and with the overlay (13 minutes)"
	@echo "make bench-overlay stock Kafka against the overlay in alternating labs: highest throughput and latency (35 minutes)"
	@echo "make bench-existing  tries the benchmark on a cluster that is there, with two Spark workers as load hosts (minutes)"
	@echo "make bench-scale  tries it with eight executors and 10,000 records/s on 64 partitions, and kills one (minutes)"
	@echo "make bench-speed  how fast its analysis is, on 5 and 50 million made-up observations"
	@echo "make bench-pacer  whether its pacer holds 20,000 records/s on one core, and how late it sends (some seconds)"
	@echo "make test    all that CI runs (target: 15 minutes): check, pytest, Kafka's PartitionTest and the cost of the gate on the overlay, a few system tests, make ported"
	@echo "make unit    unit and property tests: no cluster, no built Kafka (target: 3 minutes)"
	@echo "make coverage  lines that unit and property tests execute"
	@echo "make system  all system tests, two labs at a time (target: 40 minutes), and out/system/index.html"
	@echo "make system-smoke  three of them (4 to 8 minutes); system-long: many rounds, and controls that must lose records (half an hour); system-load: 10,000 partitions"
	@echo "make soak    random faults for ten minutes with each of 20 seeds (four hours; continues after an interruption); soak-long: two hours with one"
	@echo "make system-hosts  some of them on hosts of a cluster file over ssh: a lab's nodes, with an sshd in each"
	@echo "make readme-pictures RESULT=out/bench/results.json   the README's pictures of a run, which is kept beside them; of bench-full that of bench/README.md"
	@echo "make site    all documents as one site with a search, out/site/index.html; fails at a broken link (seconds)"
	@echo "make results  the table of runs in kip/results.md, from kip/evidence"
	@echo "make check   ruff, mypy --strict, import layers, the patch series, the claims about the KIP"
	@echo "make ported  the series on the earlier Kafka 4.2.1: applied, built, its PartitionTest, and a system test (4 to 7 minutes; also in make test)"
	@echo "make build   the patched Kafka alone; with KAFKA=VERSION, here and in every other target, on that version"
	@echo "make upstream      Kafka's own tests of what the series touches, stock against overlay, case by case"
	@echo "make upstream-all  every test class of the touched modules (hours; continues after an interruption)"
	@echo "make series-check  every prefix of the series, and each fix alone, compiles and passes the tests of its last patch; series-check-all: all its tests (hours)"
	@echo "make archive the overlay as one file with an install note and checksums"
	@echo "make check-reproducible  two clean builds, in other folders, by other users, on other days: the same bytes (5 minutes)"
	@echo "make jmh     what the gate costs: JMH, stock against overlay; jmh-full measures what that leaves undecided up to eight times as often"
	@echo "make mutate  take one piece of the series out after another; a test of Kafka must fail each time"
	@echo "make mutate-histories  plant violations in the histories of system tests below out; a checker must find each (seconds a history)"
	@echo "make second-opinion    check these histories with Porcupine as well, which shares no code with the checkers (needs Go)"
	@echo "make formal  the formal model in kip/formal: what holds, and the counter-examples without a piece of the patch (minutes)"
	@echo "make runbook       every step of kip/operations.md, in a lab"
	@echo "make monitoring    each alert fires and resolves in a lab with Prometheus; the cost of scrapes with 10,000 partitions"
	@echo "make acks          records with acks=0 and acks=1 while a rack is unavailable (a minute)"
	@echo "make kafka-long    racks that return in further orders; every client in further modes while a broker is killed; rackgate lower and restore killed at further steps; the change from the earlier edition of the overlay, and from Kafka 4.2.1 to 4.3.1, and back; MirrorMaker 2 in an outage; preflight and check on Kafka 3.9 (24 minutes)"
	@echo "make lab-rounds    fifty labs with a random fault each, of which nothing stays behind; every fault by its command (half an hour)"
	@echo "make lab-links     delay, throughput and processor time of emulated links: pyhooks/lab/link_accuracy.md (6 minutes, idle machine)"
	@echo "make lock    renew requirements/*.lock from pyproject.toml"
	@echo "make clean   remove build/ and out/"

bench: $(VENV)/ready
	@exec $(BIN)/rackgate bench run

# The cells that a reviewer would ask for, and the tail of one of them; finished blocks are kept.
.PHONY: bench-full bench-tail
bench-full: $(VENV)/ready
	@exec $(BIN)/rackgate bench run --scenario full --out out/bench-full

bench-tail: $(VENV)/ready
	@exec $(BIN)/rackgate bench run --scenario tail --out out/bench-tail

# Repeated rack outages: what each arm acknowledges, and what is lost with a destroyed rack.
.PHONY: bench-outages
bench-outages: $(VENV)/ready
	@exec $(BIN)/rackgate bench outages

# acks=all while a returned rack catches up, on stock Kafka and with the overlay.
.PHONY: bench-returned
bench-returned: $(VENV)/ready
	@exec $(BIN)/rackgate bench outages --plan returned --out out/bench-returned

# Stock Kafka and the overlay in labs that alternate: highest throughput, and latency at a low rate.
.PHONY: bench-overlay
bench-overlay: $(VENV)/ready
	@exec $(BIN)/rackgate bench overlay

# The README's pictures, from the stored result, or from RESULT, which is stored then.
.PHONY: readme-pictures
readme-pictures: $(VENV)/ready
	@exec $(BIN)/python -m bench.report.document_pictures $(if $(RESULT),--result $(RESULT))

# The table of runs in kip/results.md, from kip/evidence.
.PHONY: results
results: $(VENV)/ready
	@exec $(BIN)/python -m pyhooks.evidence.run_table

# A cluster that is there already: three brokers with SASL, a Spark master and two workers, all on loopback.
.PHONY: bench-existing
bench-existing: build
	@exec $(BIN)/pytest -s -m long tests/live/bench/test_existing_cluster_live.py

# Eight executors, 10,000 records/s on 64 partitions, one executor killed; figures for bench/scale.md.
.PHONY: bench-scale
bench-scale: build
	@exec $(BIN)/pytest -s -m long tests/live/bench/test_many_executors.py

# The analysis alone, on made-up observations, 5 and 50 million; needs no cluster.
.PHONY: bench-speed
bench-speed: $(VENV)/ready
	@exec $(BIN)/rackgate bench speed

# The pacer on one otherwise idle core, with librdkafka and its mock broker; needs no cluster.
.PHONY: bench-pacer
bench-pacer: $(VENV)/ready
	@exec $(BIN)/rackgate bench pacer


build: $(VENV)/ready
	@exec $(BIN)/rackgate build

# Two jobs at a time: beside the build and the series on the other version what needs no built Kafka; beside the live tests,
# which mostly wait, the system tests and Kafka's own. Each prints its output when it ends. Tests that judge times follow,
# when nothing else runs.
.PHONY: tests-beside
tests-beside: $(VENV)/ready
	@echo "make test: check, unit tests, build and make ported first, then live tests, system tests and Kafka's own; each reports when it ends"
	exec $(MAKE) --no-print-directory --jobs 2 --output-sync=target \
	    check site build unit live system-smoke upstream-smoke ported SYSTEM_JOBS=1

test: tests-beside
	@$(BIN)/pytest -m alone tests/live
	echo "make test: check, pytest, Kafka's PartitionTest, the cost of the gate, the system tests and the series on $(PORTED) passed"

# The series on other versions of Kafka: whether it applies, builds and compiles with its tests, and a system test, which
# rejects records.
PORTED := 4.2.1
.PHONY: ported
ported: $(VENV)/ready $(DUCKTAPE_VENV)/ready
	@for version in $(PORTED); do
	    $(BIN)/rackgate --kafka $$version build
	    $(BIN)/rackgate --kafka $$version patch check
	    $(BIN)/rackgate --kafka $$version patch test kafka.cluster.PartitionTest
	    $(BIN)/rackgate --kafka $$version system run kip_test.py::KipTest.test_a_whole_rack_shut_down --jobs 1 \
	        --run-dir out/system-$$version
	done

check: $(VENV)/ready
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/rackgate patch check
	$(BIN)/rackgate evidence --check

unit: $(VENV)/ready
	@exec $(BIN)/pytest -n 2 --dist loadfile tests/unit tests/property

# Lines that unit and property tests execute, by file; child processes do not count.
.PHONY: coverage
coverage: $(VENV)/ready
	@exec $(BIN)/pytest -q -n 2 --dist loadfile --cov=pyhooks --cov=bench --cov=ducktape_tests --cov-report=term:skip-covered \
	    tests/unit tests/property

# Three at a time, since labs mostly wait; a file's tests stay together for what they share (tests/conftest.py).
.PHONY: live
live: $(VENV)/ready build
	@exec $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long and not slow and not alone" tests/live

# all that make test runs of pytest
pytest: unit live
	@exec $(BIN)/pytest -m alone tests/live

# The second class compares the bytes and the metadata look-ups of an append and a high watermark update, with R=1 and R=2.
upstream-smoke: build
	@exec $(BIN)/rackgate patch test kafka.cluster.PartitionTest kafka.cluster.PartitionRackCheckCostTest

# two labs at a time; one beside the live tests, which have labs too
SYSTEM_JOBS := 2
system-smoke: build $(DUCKTAPE_VENV)/ready
	@exec $(BIN)/rackgate system run smoke --jobs $(SYSTEM_JOBS) --run-dir out/system-smoke

system: build $(DUCKTAPE_VENV)/ready
	@exec $(BIN)/rackgate system run system

system-long: build $(DUCKTAPE_VENV)/ready
	@exec $(BIN)/rackgate system run long --run-dir out/system-long

# Random faults for ten minutes with each of many seeds, and for two hours with one. A seed that passed is not run again.
SOAK_SEEDS := 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
.PHONY: soak soak-long
soak: build $(DUCKTAPE_VENV)/ready
	@mkdir -p out/soak
	failed=
	for seed in $(SOAK_SEEDS); do
	    [ -e out/soak/passed-$$seed ] && continue
	    echo "soak: seed $$seed"
	    if $(BIN)/rackgate system run soak --jobs 1 --seed $$seed --run-dir out/soak/seed-$$seed; then
	        touch out/soak/passed-$$seed
	    else
	        failed="$$failed $$seed"
	    fi
	done
	[ -z "$$failed" ] || { echo "soak: failed with seeds$$failed; 'make soak' runs only them again"; exit 1; }

soak-long: build $(DUCKTAPE_VENV)/ready
	@exec $(BIN)/rackgate system run soak-long --jobs 1 --run-dir out/soak-long

# the same over ssh, on the hosts of a cluster file: here the nodes of a lab, with an sshd in each (needs openssh-server)
HOSTED := kip_test.py defaults_test.py faults_test.py destroyed_test.py::StockTest \
    flapping_test.py::FlappingTest.test_a_rack_that_comes_and_goes \
    flapping_test.py::FlappingTest.test_followers_parted_from_their_leader
system-hosts: build $(DUCKTAPE_VENV)/ready
	@exec $(BIN)/rackgate lab run --bare --as-root --topology az3-outside --run-dir out/hosts-lab -- \
	    $(BIN)/python -m ducktape_tests.sshhosts out/hosts.json -- \
	    $(BIN)/rackgate system run $(HOSTED) --cluster-file out/hosts.json --run-dir out/system-hosts

system-load: build $(DUCKTAPE_VENV)/ready
	@exec $(BIN)/rackgate system run load --jobs 1 --run-dir out/system-load

# Violations are planted in the histories below out; the checkers must find each of them. Needs no cluster.
.PHONY: mutate-histories
mutate-histories: $(VENV)/ready
	@exec $(BIN)/rackgate system mutate

# A second opinion on these histories, by Porcupine; needs Go.
.PHONY: second-opinion
second-opinion: $(VENV)/ready
	@exec $(BIN)/rackgate system second-opinion

# Set-up: a virtual environment for the project, one for ducktape with its own strict pins, both by hash.
VENV_FILES := requirements/build.lock setup/system.sh
$(VENV)/ready: requirements/main.lock $(VENV_FILES)
	@PYTHON=$(PYTHON) exec setup/venv.sh $(VENV) $^

$(DUCKTAPE_VENV)/ready: requirements/ducktape.lock $(VENV_FILES)
	@PYTHON=$(PYTHON) exec setup/venv.sh $(DUCKTAPE_VENV) $^

# The documents as one site with a search: out/site/index.html.
SITE_VENV := .venv-site
$(SITE_VENV)/ready: requirements/site.lock $(VENV_FILES)
	@PYTHON=$(PYTHON) exec setup/venv.sh $(SITE_VENV) $^

.PHONY: site
site: $(SITE_VENV)/ready
	@$(SITE_VENV)/bin/python setup/site/stage.py . out/site-source
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --quiet --clean -f setup/site/mkdocs.yml
	echo "out/site/index.html"

lock:
	@setup/lock.sh

clean:
	@rm -rf build out

upstream: $(VENV)/ready build
	@exec $(BIN)/rackgate patch upstream

upstream-all: $(VENV)/ready build
	@exec $(BIN)/rackgate patch upstream --all

series-check: $(VENV)/ready
	@exec $(BIN)/rackgate patch series-check

# all tests of each prefix, and not only those that its last patch changes
.PHONY: series-check-all
series-check-all: $(VENV)/ready
	@exec $(BIN)/rackgate patch series-check --all-tests

archive: $(VENV)/ready
	@exec $(BIN)/rackgate build --archive

# Two clean builds in other folders, by other users, on other days; the overlay and its archive must have the same bytes.
.PHONY: check-reproducible
check-reproducible: $(VENV)/ready
	@exec $(BIN)/rackgate patch check-reproducible

jmh: build
	@exec $(BIN)/rackgate patch jmh

jmh-full: build
	@exec $(BIN)/rackgate patch jmh --full

# All orders in which killed and destroyed racks return; two editions, the earlier one built from the history of this repository.
.PHONY: kafka-long
kafka-long: build
	@exec $(BIN)/pytest -m long tests/live/kafka tests/live/outage tests/live/workload/test_clients_and_killed_broker.py \
	    tests/live/placement/test_preflight_command.py

.PHONY: lab-rounds
lab-rounds: build
	@exec $(BIN)/pytest -s -m long --ignore tests/live/lab/test_links.py tests/live/lab

# Needs an otherwise idle machine.
.PHONY: lab-links
lab-links: $(VENV)/ready
	@exec $(BIN)/pytest -s -m long tests/live/lab/test_links.py

# Prometheus scrapes a lab and alerts; what a scrape costs with 10,000 partitions (some ten minutes).
.PHONY: monitoring
monitoring: build
	@exec $(BIN)/pytest -s -m long tests/live/monitoring

.PHONY: acks
acks: build
	@exec $(BIN)/pytest -s -m long tests/live/workload/test_acks_and_rack_loss.py

# Every step of kip/operations.md, in a lab, and those of maintenance on brokers of this host (some minutes).
.PHONY: runbook
runbook: build
	@exec $(BIN)/pytest -s -m long tests/live/documents/test_operations.py tests/live/documents/test_maintenance.py

# One piece of the series is taken out after another, and a test of Kafka must fail each time. Can be interrupted.
.PHONY: mutate
mutate: build
	@exec $(BIN)/rackgate patch mutate

# The formal model: each command within its bounds, each with the outcome that it must have; pictures of what was found.
# Then whether records are lost only without the removed part.
.PHONY: formal
formal: $(VENV)/ready
	@$(BIN)/rackgate formal
	exec $(BIN)/pytest -m long tests/live/formal
