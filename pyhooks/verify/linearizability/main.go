// Check recorded histories against an append-only log per partition, with Porcupine.
//
// usage: linearizability [-timeout 60s] HISTORY...
//
// Prints one line of JSON per history and partition. It shares no code with the checkers in pyhooks/checkers: it reads
// the stored events itself, and searches for an order of all operations that is consistent with real time and in which
// each record has a higher offset than all before it, and each read returns exactly the records before it.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// never is the return time of an operation that may take effect at any time after its call.
const never = math.MaxInt64 / 2

// event is a line of a history; details that differ between operations are pointers.
type event struct {
	MonoNs  int64   `json:"mono_ns"`
	Op      string  `json:"op"`
	Outcome *string `json:"outcome"`
	Data    struct {
		Run       string     `json:"run"`
		Topic     string     `json:"topic"`
		Key       string     `json:"key"`
		Partition *int       `json:"partition"`
		Offset    *int64     `json:"offset"`
		SentNs    *int64     `json:"sent_ns"`
		BegunNs   *int64     `json:"begun_ns"`
		Acks      string     `json:"acks"`
		ErrorNs   int64      `json:"error_ns"`
		Pass      string     `json:"pass"`
		Isolation string     `json:"isolation"`
		Low       int64      `json:"low"`
		End       int64      `json:"end"`
		Begin     *int64     `json:"begin"`
		Next      int64      `json:"next"`
		Runs      [][2]int64 `json:"runs"`
		Keys      []*string  `json:"keys"`
	} `json:"data"`
}

type placed struct {
	offset int64
	key    string
}

// appended is the input of an append: a record, and the number of lower offsets that any operation has. All operations
// must take effect, so an append is possible only if those at all lower offsets came before.
type appended struct {
	placed
	rank int
}

// pass is a read of a partition from its first offset to its end.
type pass struct {
	begunNs, endedNs int64
	low, end, next   int64
	complete         bool
	records          []placed
}

// logState is the state of a log: the number of its records, and a hash of all of them in order.
type logState struct {
	count int
	hash  uint64
}

func (s logState) append(r placed) logState {
	h := fnv.New64a()
	var fixed [16]byte
	binary.LittleEndian.PutUint64(fixed[:8], s.hash)
	binary.LittleEndian.PutUint64(fixed[8:], uint64(r.offset))
	h.Write(fixed[:])
	h.Write([]byte(r.key))
	return logState{s.count + 1, h.Sum64()}
}

// model is an append-only log: the input of an append is its record, that of a read is nil and its output the state.
var model = porcupine.Model{
	Init: func() interface{} { return logState{} },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		log := state.(logState)
		if record, ok := input.(appended); ok {
			return record.rank == log.count, log.append(record.placed)
		}
		return log == output.(logState), log
	},
}

type partition struct {
	topic  string
	number int
}

func (p partition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.number) }

type history struct {
	acksOne map[[2]string]bool  // run and topic of producers with acks=1
	intends map[[2]string]int64 // run and topic to the time of the first announcement
	errors  map[string]int64    // run to the error of its clock
	results []event
	passes  map[partition]map[string]*pass
}

func load(path string) (*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := &history{map[[2]string]bool{}, map[[2]string]int64{}, map[string]int64{}, nil, map[partition]map[string]*pass{}}
	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if len(strings.TrimSpace(string(line))) > 0 {
			var one event
			if fault := json.Unmarshal(line, &one); fault != nil && relevant(line) {
				return nil, fmt.Errorf("%s:%d: %v", path, number, fault)
			} else if fault == nil {
				found.add(one)
			}
		}
		if err != nil {
			return found, nil
		}
	}
}

// relevant tells whether a line is an event that add uses; data of other events may have other types.
func relevant(line []byte) bool {
	for _, op := range []string{"produce", "intend", "read", "clock"} {
		if strings.Contains(string(line), fmt.Sprintf(`"op":"%s"`, op)) {
			return true
		}
	}
	return false
}

func (h *history) add(one event) {
	data := one.Data
	name := [2]string{data.Run, data.Topic}
	switch one.Op {
	case "intend":
		h.acksOne[name] = data.Acks != "" && data.Acks != "all"
		if _, known := h.intends[name]; !known {
			h.intends[name] = one.MonoNs
		}
	case "clock":
		if data.ErrorNs > h.errors[data.Run] {
			h.errors[data.Run] = data.ErrorNs
		}
	case "produce":
		h.results = append(h.results, one)
	case "read":
		if data.Isolation != "read_uncommitted" || data.Partition == nil {
			return
		}
		at := partition{data.Topic, *data.Partition}
		if h.passes[at] == nil {
			h.passes[at] = map[string]*pass{}
		}
		h.passes[at][data.Pass] = extended(h.passes[at][data.Pass], one)
	}
}

// extended returns a pass with one more chunk; chunks are in order.
func extended(read *pass, one event) *pass {
	data := one.Data
	begunNs := one.MonoNs
	if data.BegunNs != nil {
		begunNs = *data.BegunNs
	}
	if read == nil {
		read = &pass{begunNs: begunNs, low: data.Low, end: data.End, next: data.Low, complete: true}
	}
	read.endedNs = one.MonoNs
	if data.Begin == nil || *data.Begin != read.next || one.Outcome == nil || *one.Outcome != "ok" {
		read.complete = false
		return read
	}
	read.next = data.Next
	at := 0
	for _, run := range data.Runs {
		for offset := run[0]; offset < run[0]+run[1] && at < len(data.Keys); offset++ {
			key := ""
			if data.Keys[at] != nil {
				key = *data.Keys[at]
			}
			read.records = append(read.records, placed{offset, key})
			at++
		}
	}
	return read
}

// last returns the pass that began last, if it is complete.
func (h *history) last(at partition) *pass {
	var found *pass
	for _, read := range h.passes[at] {
		if found == nil || read.begunNs > found.begunNs {
			found = read
		}
	}
	if found == nil || !found.complete || found.next != found.end {
		return nil
	}
	return found
}

// operations returns the appends and reads of all partitions.
func (h *history) operations() map[partition][]porcupine.Operation {
	found := map[partition][]porcupine.Operation{}
	offsets := map[partition]map[string][]int64{}
	for at := range h.passes {
		offsets[at] = map[string][]int64{}
		if read := h.last(at); read != nil {
			for _, record := range read.records {
				offsets[at][record.key] = append(offsets[at][record.key], record.offset)
			}
		}
	}
	recorded := map[partition]map[string]bool{}
	for _, one := range h.results {
		data := one.Data
		if data.Partition == nil || one.Outcome == nil {
			continue
		}
		at := partition{data.Topic, *data.Partition}
		if recorded[at] == nil {
			recorded[at] = map[string]bool{}
		}
		recorded[at][data.Key] = true
		if *one.Outcome == "fail" {
			continue
		}
		callNs := int64(0)
		if data.SentNs != nil {
			callNs = *data.SentNs - h.errors[data.Run]
		}
		acked := int64(-1)
		if *one.Outcome == "ok" && data.Offset != nil && *data.Offset >= 0 && !h.acksOne[[2]string{data.Run, data.Topic}] {
			acked = *data.Offset
			found[at] = append(found[at], operation(placed{acked, data.Key}, callNs, one.MonoNs+h.errors[data.Run]))
		}
		for _, offset := range offsets[at][data.Key] {
			if offset != acked {
				found[at] = append(found[at], operation(placed{offset, data.Key}, callNs, never))
			}
		}
	}
	for at := range h.passes {
		for key, places := range offsets[at] {
			announcedNs, known := h.intends[[2]string{strings.SplitN(key, "/", 2)[0], at.topic}]
			if recorded[at][key] || !known {
				continue
			}
			for _, offset := range places {
				found[at] = append(found[at], operation(placed{offset, key}, announcedNs, never))
			}
		}
		for _, read := range h.passes[at] {
			if read.complete && read.next == read.end && read.low == 0 {
				state := logState{}
				for _, record := range read.records {
					state = state.append(record)
				}
				found[at] = append(found[at], porcupine.Operation{Output: state, Call: read.begunNs, Return: read.endedNs})
			}
		}
	}
	for _, operations := range found {
		rank(operations)
	}
	return found
}

func operation(record placed, callNs, returnNs int64) porcupine.Operation {
	return porcupine.Operation{Input: appended{placed: record}, Call: callNs, Return: returnNs}
}

// rank sets the ranks of the appends; appends at one offset have the same.
func rank(operations []porcupine.Operation) {
	offsets := []int64{}
	for _, one := range operations {
		if record, ok := one.Input.(appended); ok {
			offsets = append(offsets, record.offset)
		}
	}
	sort.Slice(offsets, func(i, j int) bool { return offsets[i] < offsets[j] })
	for at, one := range operations {
		if record, ok := one.Input.(appended); ok {
			record.rank = sort.Search(len(offsets), func(i int) bool { return offsets[i] >= record.offset })
			operations[at].Input = record
		}
	}
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "bound for the search in a partition")
	flag.Parse()
	output := json.NewEncoder(os.Stdout)
	for _, path := range flag.Args() {
		loaded, err := load(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		byPartition := loaded.operations()
		names := make([]partition, 0, len(byPartition))
		for at := range byPartition {
			names = append(names, at)
		}
		sort.Slice(names, func(i, j int) bool { return names[i].String() < names[j].String() })
		for _, at := range names {
			reads := 0
			for _, one := range byPartition[at] {
				if one.Input == nil {
					reads++
				}
			}
			output.Encode(map[string]interface{}{
				"history":    path,
				"partition":  at.String(),
				"result":     porcupine.CheckOperationsTimeout(model, byPartition[at], *timeout),
				"operations": len(byPartition[at]),
				"reads":      reads,
			})
		}
	}
}
