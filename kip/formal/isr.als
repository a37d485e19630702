/*
 * One partition of a topic with min.insync.replicas (M) and min.insync.racks (R) on Apache Kafka 4.3.1 with the series in
 * patch/4.3.1: ISR, ELR, leader, high watermark, and the effect of failing racks on them.
 *
 * Comments use names of Kafka: PCB = PartitionChangeBuilder, RCM = ReplicationControlManager, CCM =
 * ConfigurationControlManager (all in the controller), Partition = kafka.cluster.Partition (in brokers). fixes/, gate/ and
 * elr/ are parts of the series. kip/formal.md describes what is checked, the bounds, and what is not modelled.
 *
 * All brokers of the model are replicas. Each step is one event; Stutter changes nothing. Where Kafka's behaviour depends on
 * something that is not modelled (the order of replicas, how long a follower may lag), the model allows every outcome.
 */
module isr

open util/ordering[Epoch] as epochs
open util/ordering[Record] as records

-- Pieces of the series, each of which can be removed. In gate/: AppendGate: Partition.appendRecordsToLeader.
-- AfterAppendGate: Partition.checkEnoughReplicasReachOffset. HighWatermarkGate: Partition.maybeIncrementLeaderHW. CommittedIsr:
-- all three count PartitionState.isr, not maximalIsr. ImageFirst: Partition.minInSyncRacksOfImage. In elr/: RackAwareElr:
-- PCB.maybePopulateTargetElr. RaiseGuard: RCM.validateAlterPartitionData, for M in fixes/. KeptElr: RCM.withRecordsToKeepElrs.
-- KilledMemory: PCB.populateTargetLastKnownElr. In fixes/: ImageFirstOfM: Partition.minInSyncReplicasOfImage.
-- MetadataR: the metadata is the only source of R, so that the controller knows it.
-- NoUnnamedRack: a broker without broker.rack counts for no rack; without this piece, all such brokers count as one rack.
abstract sig Feature {}
one sig AppendGate, AfterAppendGate, HighWatermarkGate, CommittedIsr, RackAwareElr, RaiseGuard, KeptElr, ImageFirst, ImageFirstOfM,
  KilledMemory, MetadataR, NoUnnamedRack extends Feature {}
sig Patched in Feature {}

-- A required number of replicas or racks, at most three.
abstract sig Level {}
one sig One, Two, Three extends Level {}

-- Racks of brokers; a rack fails as a whole. Kafka knows the rack of a broker only if the broker is Named (has broker.rack).
sig Rack {}
one sig Unnamed {}

-- Records in the order in which any leader appends them. A log is a set of records: two logs that share a record share all
-- earlier ones, because followers copy from the start and truncate to the common part with their leader.
sig Record {}
sig AcksAll in Record {} -- sent with acks=all; the others with acks=1

-- Leader epochs (PartitionRegistration.leaderEpoch) and the leader of each, if any.
sig Epoch { leads: lone Broker }

sig Broker {
  rack: one Rack,

  -- on disk
  var log: set Record,
  var hw: set Record, -- records below the high watermark, as this broker knows it

  -- what a running broker knows of the partition: Partition.leaderEpoch; for a leader also PartitionState.isr, the replica of its
  -- request to expand the ISR (PendingExpandIsr), the ISR in a response that has not arrived (AlterPartitionResponse),
  -- leaderEpochStartOffset, Replica.logEndOffset, and the followers that have fetched since they registered (Replica.brokerEpoch)
  var view: lone Epoch,
  var viewIsr: set Broker,
  var pending: lone Broker,
  var answer: set Broker,
  var start: set Record,
  var ends: Broker -> Record,
  var heard: set Broker,

  -- R and M that this broker requires, before they are capped: Partition.minInSyncRacksOf, Partition.effectiveMinIsr
  var viewR: one Level,
  var viewM: one Level
}
sig Named in Broker {}

-- State of the controller: PartitionRegistration (isr, elr, lastKnownElr, leaderEpoch), BrokerRegistration.fenced, the brokers
-- whose registration lacks the directory of their replica (hasOnlineDir), the configs of the topic, and the brokers that have not
-- reported yet that they have applied the last raise (CCM.minIsrOffset). The order of lastKnownElr is not modelled: any member
-- may be the first.
var sig Isr in Broker {}
var sig Elr in Broker {}
var sig LastKnown in Broker {}
var one sig Current in Epoch {}
var sig Active in Broker {}
var sig Mismatched in Broker {}
var one sig R in Level {}
var one sig M in Level {}
var sig Behind in Broker {}

-- Actual state of brokers: those whose process runs; those that would register as after an unclean shutdown (no
-- .kafka_cleanshutdown on disk); those with a new directory to which the replica is not assigned yet; and those that lost a part
-- of their log and have not joined the ISR since.
var sig Up in Broker {}
var sig Unclean in Broker {}
var sig Replaced in Broker {}
var sig Torn in Broker {}

-- For the promise: records that were below the high watermark of a leader, so that consumers may have read them; those of them
-- that were acknowledged to acks=all; all appended records; members of the ISR, ELR or last known ELR that lost a part of their
-- logs and have not joined the ISR again; and the lowest number of racks that was required since the ISR spanned that many.
var sig Committed in Record {}
var sig Acked in Record {}
var sig Appended in Record {}
var sig Damaged in Broker {}
var one sig Guarantee in Level {}
var lone sig Void in Epoch {} -- epoch since which too many racks are damaged: nothing is promised anymore

-- For pictures: the event of a step, and the brokers that it affects.
abstract sig Event {}
one sig Append, Fetch, AskToAdd, Add, Reject, Shrink, Answer, Learn, Begin, Kill, Destroy, Stop, Fence, Register, Assign, Unfence, Prefer,
  Alter, Stutter extends Event {}
var one sig Now in Event {}
var sig Whom in Broker {}

---------------------------------------------------------------------------------------------------------------------------------
-- Counting

pred three[s: set Broker] { some disj x, y, z: Broker | x + y + z in s }

-- min(level, replication factor): Partition.effectiveMinIsr, effectiveMinRacks, PCB.spansMinRacks, RCM.getEffectiveMinIsr
fun capped[k: Level]: Level { three[Broker] => k else lone Broker => One else lower[k, Two] }

fun lower[a, b: Level]: Level { One in a + b => One else Two in a + b => Two else Three }

pred raised[from, to: Level] { from != to and lower[from, to] = from }

pred many[s: set Broker, k: Level] { k = One => some s else k = Two => not lone s else three[s] }

-- ClusterControlManager.racks: the racks of brokers that Kafka knows
fun knownRacks[s: set Broker]: set Rack + Unnamed {
  (s & Named).rack + (NoUnnamedRack not in Patched and s not in Named => Unnamed else none)
}

pred atLeast[s: set Rack + Unnamed, k: Level] {
  k = One => some s else k = Two => not lone s else some disj x, y, z: Rack + Unnamed | x + y + z in s
}

-- If one rack is required, any replica suffices, even if its rack is unknown.
pred spans[s: set Broker, k: Level] { k = One => some s else atLeast[knownRacks[s], k] }

---------------------------------------------------------------------------------------------------------------------------------
-- The controller changes the partition

-- CCM.minInSyncRacks
fun minRacks: Level { MetadataR in Patched => R else One }

pred remembersKilled { KilledMemory in Patched and minRacks != One }

-- Whether the ELR is cleared: the first condition of PCB.maybePopulateTargetElr.
pred forgetful[isr: set Broker] {
  many[isr, capped[M]]
  RackAwareElr in Patched implies spans[isr, capped[minRacks]]
}

-- RCM.isShort
pred short[isr: set Broker] { not (many[isr, capped[M]] and spans[isr, capped[minRacks]]) }

-- PCB.build without reassignments and unclean elections. "isr" is targetIsr, "unclean" uncleanShutdownReplicas, "lost"
-- lostReplicas; "picks" are the brokers that may be elected: all, or the preferred one.
pred change[isr, unclean, lost, picks: set Broker] {
  let elr = forgetful[isr] => none else Elr + Isr - isr - unclean - lost, -- maybePopulateTargetElr
      candidates = forgetful[isr] => none else Current.leads + LastKnown + (Isr + Elr - elr) - isr, -- populateTargetLastKnownElr
      kept = no isr + elr + candidates - lost => candidates else candidates - lost,
      fit = Active' - Mismatched', -- isAcceptableLeader
      valid = fit & (some isr => isr else elr) { -- isValidNewLeader
    (some Current.leads & valid and Broker in picks) => { -- electAnyLeader: the current leader is valid
      Current' = Current
      Isr' = isr
      Elr' = elr
      LastKnown' = (remembersKilled => kept - isr - elr else LastKnown)
    } else some valid & picks => { -- tryElection, from the ISR or, if that is empty, from the ELR
      Current' = Current.next
      some Current'.leads & valid & picks
      Isr' = (some isr => isr else Current'.leads)
      Elr' = elr - Current'.leads
      LastKnown' = (remembersKilled => kept - Isr' - Elr' else none) -- maybeUpdateLastKnownLeader
    } else (electsLastKnown[isr + elr, fit & (remembersKilled => kept else LastKnown)]) => {
      Isr' = Current'.leads
      no Elr'
      LastKnown' = (remembersKilled => kept - Isr' else none)
    } else {
      Isr' = isr
      Elr' = elr
      no Current.leads => Current' = Current else (Current' = Current.next and no Current'.leads)
      LastKnown' = (remembersKilled => kept else some LastKnown => LastKnown else Current.leads)
    }
  }
}

-- canElectLastKnownLeader; electableLastKnownLeader, which waits for the first member
pred electsLastKnown[isrAndElr, fit: set Broker] {
  no isrAndElr
  some fit
  Current' = Current.next
  some Current'.leads & fit
}

-- State of the promise after a change; "harmed" are members that it damages. Racks of damaged brokers are the actual ones, even
-- if Kafka does not know them. A remembered replica that lost a part of its log in its directory, as in a power failure, may be
-- elected before those that lost nothing. So while there is one, all remembered replicas count.
pred account[harmed: set Broker] {
  spans[Isr', capped[R']] => {
    no Damaged'
    Guarantee' = capped[R']
  } else {
    Damaged' = Damaged + harmed - Isr'
    Guarantee' = lower[Guarantee, capped[R']]
  }
  Torn' = Torn - (Isr' - Isr - Unclean')
  (some Void or strikes[Damaged + harmed, Guarantee] or strikes[Damaged', Guarantee'] or
    (some tornRemembered and strikes[Damaged + harmed + LastKnown + LastKnown', Guarantee]) or
    (some tornRemembered' and strikes[Damaged' + LastKnown', Guarantee'])) => some Void' else no Void'
}

-- Remembered replicas that have returned in their former directories without a part of their logs
fun tornRemembered: set Broker { LastKnown & Torn - Replaced - Unclean }

pred strikes[s: set Broker, k: Level] { atLeast[s.rack, k] }

pred sameBooks {
  Damaged' = Damaged
  Guarantee' = Guarantee
  Void' = Void
}

pred sameRegistration {
  Isr' = Isr
  Elr' = Elr
  LastKnown' = LastKnown
  Current' = Current
}

pred samePartition {
  sameRegistration
  sameBooks
  Torn' = Torn
}

pred sameConfigs {
  R' = R
  M' = M
  Behind' = Behind
}

pred sameBrokers {
  Up' = Up
  Active' = Active
  Unclean' = Unclean
  sameDirectories
}

pred sameDirectories {
  Replaced' = Replaced
  Mismatched' = Mismatched
}

pred sameLogs {
  log' = log
  hw' = hw
  Committed' = Committed
  Acked' = Acked
  Appended' = Appended
}

pred sameViews {
  view' = view
  viewIsr' = viewIsr
  pending' = pending
  answer' = answer
  start' = start
  ends' = ends
  heard' = heard
  viewR' = viewR
  viewM' = viewM
}

---------------------------------------------------------------------------------------------------------------------------------
-- The high watermark

pred leading[b: Broker] { b in Up and b.view.leads = b }

-- The members whose racks count for a leader with this ISR and this pending member.
fun counted[isr, pending: set Broker]: set Broker { CommittedIsr in Patched => isr else isr + pending }

-- Partition.maybeIncrementLeaderHW with the leader's state after the step; then waiting requests are completed
-- (DelayedProduce, Partition.checkEnoughReplicasReachOffset).
pred advance[l: Broker] {
  let isr = l.viewIsr', maximal = isr + l.pending', enough = spans[counted[isr, l.pending'], capped[l.viewR']] {
    l.hw' = l.hw + ((many[isr, capped[l.viewM']] and (HighWatermarkGate in Patched implies enough)) =>
      { r: l.log' | all m: maximal - l | r in m.(l.ends') } else none)
    Committed' = Committed + l.hw'
    Acked' = Acked + ((AfterAppendGate in Patched implies enough) => AcksAll & (l.hw' - l.hw) else none)
  }
}

-- Partition.appendRecordsToLeader. With acks=all it is rejected while the ISR is short; with acks=1 it is not.
pred append[l: Broker] {
  Now = Append and Whom = l
  leading[l]
  one r: Record - Appended {
    r.prevs in Appended
    r in AcksAll implies many[l.viewIsr, capped[l.viewM]] and
      (AppendGate in Patched implies spans[counted[l.viewIsr, l.pending], capped[l.viewR]])
    log' = log + l -> r
    Appended' = Appended + r
  }
  all b: Broker - l | b.hw' = b.hw
  advance[l]
  samePartition and sameConfigs and sameBrokers and sameViews
}

-- Followers truncate to the common part with their leader and fetch any number of records (AbstractFetcherThread). The leader
-- learns their log end offsets as they were before this fetch, or after it by an immediate next one (Partition.updateFollowerFetchState).
pred fetch[l: Broker, followers: set Broker] {
  Now = Fetch
  leading[l]
  some followers and followers in Up - l
  all f: followers {
    f.view = l.view
    f.log & l.log in f.log'
    f.log' in l.log
    l.log & f.log'.prevs in f.log'
    f.hw' = f.log' & (f.hw + l.hw)
    f.(l.ends') = f.log' or f.(l.ends') = f.log & l.log
  }
  all f: Broker - followers | f.(l.ends') = f.(l.ends)
  all b: Broker - l | b.ends' = b.ends and b.heard' = b.heard
  l.heard' = l.heard + followers - (l.pending - l.heard) -- a request in flight keeps its broker epoch
  all b: Broker - l - followers | b.log' = b.log and b.hw' = b.hw
  l.log' = l.log
  advance[l]
  Appended' = Appended
  view' = view and viewIsr' = viewIsr and pending' = pending and answer' = answer and start' = start and viewR' = viewR and viewM' = viewM
  samePartition and sameConfigs and sameBrokers
}

---------------------------------------------------------------------------------------------------------------------------------
-- The leader changes the ISR

-- RCM.validateAlterPartitionData: the request is of the current leader with the current partition epoch, and all members are
-- eligible (ineligibleReplicasForIsr). A leader that may not have applied a raised R must not make the ISR short while a replica
-- is, or becomes, eligible or remembered.
pred accepted[l: Broker, isr: set Broker] {
  l.view = Current and Current.leads = l and l.viewIsr = Isr
  isr in Active
  not (RaiseGuard in Patched and R != One and l in Behind and (some Elr + LastKnown or Isr not in isr) and short[isr])
}

-- Partition.maybeExpandIsr, prepareIsrExpand: the follower has all records up to leaderEpochStartOffset and the high watermark
pred askToAdd[l, f: Broker] {
  Now = AskToAdd and Whom = f
  leading[l]
  no l.pending + l.answer
  f in l.heard - l.viewIsr
  l.start + l.hw in f.(l.ends)
  pending' = pending + l -> f
  all b: Broker - l | b.hw' = b.hw
  advance[l]
  log' = log and Appended' = Appended
  view' = view and viewIsr' = viewIsr and answer' = answer and start' = start and ends' = ends and heard' = heard and viewR' = viewR and viewM' = viewM
  samePartition and sameConfigs and sameBrokers
}

-- RCM.alterPartition adds the pending member, unless it has registered again since the leader learned its broker epoch.
pred add[l: Broker] {
  Now = Add and Whom = l.pending
  some l.pending and no l.answer
  l.pending in l.heard
  accepted[l, Isr + l.pending]
  change[Isr + l.pending, none, none, Broker]
  account[none]
  answer' = answer + l -> Isr'
  view' = view and viewIsr' = viewIsr and pending' = pending and start' = start and ends' = ends and heard' = heard and viewR' = viewR and viewM' = viewM
  sameConfigs and sameBrokers and sameLogs
}

-- The request failed: Partition.submitAlterPartition resets to the last committed state
pred reject[l: Broker] {
  Now = Reject and Whom = l.pending
  leading[l]
  some l.pending and no l.answer
  pending' = pending - l -> Broker
  view' = view and viewIsr' = viewIsr and answer' = answer and start' = start and ends' = ends and heard' = heard and viewR' = viewR and viewM' = viewM
  samePartition and sameConfigs and sameBrokers and sameLogs
}

-- Partition.maybeShrinkIsr and RCM.alterPartition in one step. Until the response arrives, the leader still waits for the members
-- that it removes (PendingShrinkIsr.maximalIsr).
pred shrink[l: Broker, late: set Broker] {
  Now = Shrink
  leading[l]
  no l.pending + l.answer
  some late and late in l.viewIsr - l
  accepted[l, Isr - late]
  change[Isr - late, none, none, Broker]
  account[none]
  answer' = answer + l -> Isr'
  view' = view and viewIsr' = viewIsr and pending' = pending and start' = start and ends' = ends and heard' = heard and viewR' = viewR and viewM' = viewM
  sameConfigs and sameBrokers and sameLogs
}

-- Partition.handleAlterPartitionUpdate: the leader applies the ISR, but no configs
pred receive[l: Broker] {
  Now = Answer and Whom = l
  leading[l]
  some l.answer
  viewIsr' = viewIsr - l -> Broker + l -> l.answer
  pending' = pending - l -> Broker
  answer' = answer - l -> Broker
  all b: Broker - l | b.hw' = b.hw
  advance[l]
  log' = log and Appended' = Appended
  view' = view and start' = start and ends' = ends and heard' = heard and viewR' = viewR and viewM' = viewM
  samePartition and sameConfigs and sameBrokers
}

-- A broker applies the partition of the metadata: Partition.makeLeader or makeFollower. A request in flight is kept if the metadata
-- repeats the known ISR (fixes/0018).
pred applyPartition[b: Broker] {
  b in Up
  view' = view - b -> Epoch + b -> Current
  all other: Broker - b {
    other.viewIsr' = other.viewIsr and other.pending' = other.pending and other.answer' = other.answer
    other.start' = other.start and other.ends' = other.ends and other.heard' = other.heard
    other.hw' = other.hw
  }
  b != Current.leads => {
    no b.viewIsr' and no b.pending' and no b.answer' and no b.start' and no b.ends' and no b.heard'
    hw' = hw and Committed' = Committed and Acked' = Acked
  } else {
    b.viewIsr' = Isr
    b.view = Current and b.viewIsr = Isr and no b.answer => b.pending' = b.pending else no b.pending'
    no b.answer'
    b.view = Current => {
      b.start' = b.start and b.ends' = b.ends and b.heard' = b.heard
    } else {
      b.start' = b.log and no b.ends' and no b.heard'
    }
    advance[b]
  }
  log' = log and Appended' = Appended
  R' = R and M' = M
  samePartition and sameBrokers
}

-- A broker applies the metadata, then its heartbeat reports that. It may skip intermediate metadata.
pred learn[b: Broker] {
  Now = Learn and Whom = b
  viewR' = viewR - b -> Level + b -> R
  viewM' = viewM - b -> Level + b -> M
  Behind' = Behind - b
  applyPartition[b]
}

-- Value of a config in an image. The default may be absent from the image; then the value that the broker has applied counts.
fun said[image, applied: Level]: set Level { image + (image = One => applied else none) }

-- BrokerMetadataPublisher applies partitions before configs. The leader requires the values of the image nevertheless, whether
-- lower or higher: Partition.updateMinIsrOfImage. For M, the model has this only at R above 1; at R=1 the value of the log counts.
-- The fixes require the M of the image wherever ELR is enabled.
pred begin[b: Broker] {
  Now = Begin and Whom = b
  b.viewR' in (ImageFirst in Patched => said[R, b.viewR] else b.viewR)
  b.viewM' in (ImageFirstOfM in Patched and R != One => said[M, b.viewM] else b.viewM)
  all other: Broker - b | other.viewR' = other.viewR and other.viewM' = other.viewM
  Behind' = Behind
  applyPartition[b]
}

---------------------------------------------------------------------------------------------------------------------------------
-- Failures and returns of brokers and racks

-- A process that ends has no state.
pred forget[bs: set Broker] {
  all b: bs | no b.view' and no b.viewIsr' and no b.pending' and no b.answer' and no b.start' and no b.ends' and no b.heard'
  all b: Broker - bs {
    b.view' = b.view and b.viewIsr' = b.viewIsr and b.pending' = b.pending and b.answer' = b.answer and b.start' = b.start and
    b.ends' = b.ends and b.heard' = b.heard
  }
  viewR' = viewR and viewM' = viewM
}

-- A process ends without notice to the controller. After an unclean shutdown, unflushed records may be lost.
pred kill[b: Broker] {
  Now = Kill and Whom = b
  b in Up
  Up' = Up - b
  Active' = Active
  Unclean' = Unclean or Unclean' = Unclean + b
  b in Unclean' => {
    b.log' in b.log and b.log & b.log'.prevs in b.log'
    b.hw' = b.hw & b.log'
  } else (b.log' = b.log and b.hw' = b.hw)
  Torn' = Torn + (b.log' = b.log => none else b)
  all other: Broker - b | other.log' = other.log and other.hw' = other.hw
  Committed' = Committed and Acked' = Acked and Appended' = Appended
  forget[b]
  sameRegistration and sameBooks and sameConfigs and sameDirectories
}

-- Disks in one rack are replaced by empty ones, and their brokers end.
pred destroy[bs: set Broker] {
  Now = Destroy
  some bs and one bs.rack
  log' = log - bs -> Record
  hw' = hw - bs -> Record
  Up' = Up - bs
  Unclean' = Unclean + bs
  Torn' = Torn + bs
  Replaced' = Replaced + bs
  Mismatched' = Mismatched
  Active' = Active
  forget[bs]
  Committed' = Committed and Acked' = Acked and Appended' = Appended
  sameRegistration and sameBooks and sameConfigs
}

-- RCM.handleBrokerInControlledShutdown, then a clean shutdown.
pred stop[b: Broker] {
  Now = Stop and Whom = b
  b in Up & Active
  Up' = Up - b
  Active' = Active - b
  Unclean' = Unclean
  (b in Isr => change[Isr - b, none, none, Broker] and account[none] else samePartition)
  forget[b]
  sameConfigs and sameLogs and sameDirectories
}

-- RCM.handleBrokerFenced: heartbeats are missing; the broker may still run.
pred fence[b: Broker] {
  Now = Fence and Whom = b
  b in Active
  Active' = Active - b
  (b in Isr => change[Isr - b, none, none, Broker] and account[none] else samePartition)
  Up' = Up and Unclean' = Unclean
  sameConfigs and sameLogs and sameViews and sameDirectories
}

-- A broker starts and registers, fenced: ClusterControlManager.registerBroker, RCM.handleBrokerShutdown. A member that kept its
-- log is damaged only at R=1, where KIP-966 removes it.
pred register[b: Broker] {
  Now = Register and Whom = b
  b not in Up
  Up' = Up + b
  Active' = Active - b
  Unclean' = Unclean - b
  Replaced' = Replaced
  Mismatched' = Mismatched - b + (b & Replaced)
  b in Unclean & (Isr + Elr) => change[Isr - b, b, none, Broker] else
    b in Isr => change[Isr - b, none, none, Broker] else sameRegistration
  account[b & Unclean & ((R = One => Isr + Elr else none) + Torn & (Isr + Elr + LastKnown))]
  view' = view and viewIsr' = viewIsr and pending' = pending and answer' = answer and start' = start and ends' = ends and viewR' = viewR and viewM' = viewM
  heard' = heard - Broker -> b
  sameConfigs and sameLogs
}

-- RCM.handleAssignReplicasToDirs: the controller learns that a replica is in another directory. Only then is the former one known
-- to be lost (RCM.isReplicaLost): if the broker has registered and the replica is eligible or remembered, or if the broker has not
-- registered, because the session of its previous incarnation has not expired.
pred assign[b: Broker] {
  Now = Assign and Whom = b
  b in Replaced
  Replaced' = Replaced - b
  Mismatched' = (b in Up => Mismatched - b else Mismatched + b)
  let lost = (remembersKilled and b in (b in Up => Elr + LastKnown else Broker)) => b else none {
    change[b in Up => Isr else Isr - b, none, lost, Broker]
    account[lost & (Isr + Elr + LastKnown)]
  }
  Up' = Up and Active' = Active and Unclean' = Unclean
  sameConfigs and sameLogs and sameViews
}

-- RCM.handleBrokerUnfenced
pred unfence[b: Broker] {
  Now = Unfence and Whom = b
  b in Up - Active
  Active' = Active + b
  (no Current.leads => change[Isr, none, none, Broker] and account[none] else samePartition)
  Up' = Up and Unclean' = Unclean
  sameConfigs and sameLogs and sameViews and sameDirectories
}

-- RCM.maybeBalancePartitionLeaders, electPreferredLeader: the previous leader still runs and may learn of it late.
pred prefer[b: Broker] {
  Now = Prefer and Whom = b
  b in Isr & Active - Current.leads - Mismatched
  change[Isr, none, none, b]
  account[none]
  sameConfigs and sameBrokers and sameLogs and sameViews
}

-- An operator sets R or M: CCM.incrementalAlterConfigs with a ClearElrRecord, RCM.withRecordsToKeepElrs. At R=1, M is not raised
-- and no broker is late to apply a raise: there 4.3.1 can lose records. The fixes prevent that, which is not modelled.
pred alter {
  Now = Alter and no Whom
  R' != R or M' != M
  R' = One implies no Behind and not raised[M, M']
  Behind' = ((raised[R, R'] or raised[M, M']) => Broker else Behind)
  (KeptElr in Patched and R != One and not spans[Isr, capped[R']]) => {
    (capped[R'] = One and not lone LastKnown) => (one LastKnown' and LastKnown' in LastKnown) else LastKnown' = LastKnown
    (capped[R'] = One and not lone Elr) => {
      one Elr' and Elr' in (some LastKnown & Elr => LastKnown & Elr else Elr)
    } else Elr' = Elr
  } else (KeptElr in Patched and R = One and R' != One and no Isr and (some Elr implies some LastKnown & Elr)) => {
    -- when R is raised from 1, only the last leader is kept
    Elr' = LastKnown & Elr
    LastKnown' = LastKnown
  } else {
    no Elr'
    no LastKnown'
  }
  Isr' = Isr and Current' = Current
  -- removed members count as damaged if R was 1, or is 1 from now on
  account[((R = One or (R' = One and some Isr)) => Elr + LastKnown - Elr' - LastKnown' else none) +
    (R' = One => LastKnown' & Torn - Unclean else none)]
  sameBrokers and sameLogs and sameViews
}

pred stutter {
  Now = Stutter and no Whom
  samePartition and sameConfigs and sameBrokers and sameLogs and sameViews
}

---------------------------------------------------------------------------------------------------------------------------------
-- Behaviour

-- A new partition. Replicas that are not available when it is created are not in its ISR.
pred init {
  Current = first
  some Current.leads and Current.leads in Isr
  no Elr + LastKnown
  Up = Broker and Active = Broker and no Unclean + Torn + Replaced + Mismatched + Behind
  view = Broker -> Current
  viewIsr = Current.leads -> Isr
  viewR = Broker -> R
  viewM = Broker -> M
  no pending + answer + heard and no log + hw + start and no ends
  no Committed + Acked + Appended
  no Damaged and no Void
  Guarantee = capped[R]
}

pred step {
  (some l: Broker | append[l] or add[l] or reject[l] or receive[l] or fetch[l, Whom] or shrink[l, Whom] or
    (some f: Broker | askToAdd[l, f])) or
  (some b: Broker | learn[b] or begin[b] or kill[b] or stop[b] or fence[b] or register[b] or assign[b] or unfence[b] or prefer[b]) or
  destroy[Whom] or alter or stutter
}

pred behaviour { init and always step }

---------------------------------------------------------------------------------------------------------------------------------
-- The promise

pred patched { Patched = Feature }

-- A leader without a committed record truncates it everywhere; one that lost its disk can do so only after its return.
pred leaderHolds { all l: Current.leads - Unclean | Committed in l.log }

-- Each member of the ISR, ELR or last known ELR can be elected at any time, unless it has lost its directory.
fun candidates: set Broker { Isr + Elr + LastKnown - Torn }
pred candidatesHold { all b: candidates | Committed in b.log }

assert NothingIsLost { (patched and behaviour and always no Void) implies always candidatesHold }

---------------------------------------------------------------------------------------------------------------------------------
-- The invariant: true in each reachable state, so the promise is kept for any number of steps

pred logsAgree {
  Committed in Appended
  all r: Appended | r.prevs in Appended
  all b: Broker {
    b.log in Appended
    b.hw in b.log & Committed
    b.log & b.hw.prevs in b.hw
  }
  all disj a, b: Broker, r: a.log & b.log | a.log & r.prevs = b.log & r.prevs
}

pred viewsAreOfThePast {
  no Up & Unclean
  all b: Broker {
    b.view in Current + Current.prevs
    b not in Up implies no b.view
    not leading[b] implies no b.viewIsr + b.pending + b.answer + b.heard and no b.start and no b.ends
    leading[b] implies {
      b in b.viewIsr and b not in b.pending + b.heard and no b.pending & b.viewIsr
      some b.answer implies b in b.answer
      b.answer in b.viewIsr + b.pending
      b.start in b.log
      all f: Broker - b {
        f.(b.ends) in b.log and b.log & f.(b.ends).prevs in f.(b.ends)
        -- a follower that has fetched from this leader does not follow a former one again
        (f in Up and some f.(b.ends)) implies f.view in b.view + b.view.nexts
        f in b.heard & Up implies some f.view and f.view in b.view + b.view.nexts
      }
      no b.(b.ends)
    }
    -- brokers that have reported the last raise require at least its values
    b not in Behind implies lower[b.viewR, R] = R and lower[b.viewM, M] = M
  }
}

pred partitionIsInOrder {
  no Isr & Elr
  Isr in Active
  some Current.leads implies some Isr
  Current.leads in Isr
  Isr - Mismatched != none implies some Current.leads
  R = One implies lone LastKnown and (some Current.leads implies no LastKnown)
  R != One implies no LastKnown & Isr and (some Current.leads implies no LastKnown & Elr) and (some LastKnown implies short[Isr])
  some Elr implies short[Isr]
  no Isr implies lone Elr + (R != One => LastKnown else none) or all b: Elr + LastKnown | short[b] -- the first to lead does not commit alone
  -- a broker with another directory has not registered, or the controller knows that the directory differs
  Replaced in Unclean + Mismatched
  -- a broker that lost a part of its log leaves the ISR and the ELR when it registers
  Torn & (Isr + Elr + (R = One => LastKnown else none)) in Unclean
  no Damaged & Isr
  spans[Isr, capped[R]] implies no Damaged and Guarantee = capped[R]
  lower[Guarantee, capped[R]] = Guarantee
  not strikes[Damaged, Guarantee]
  some tornRemembered implies not strikes[Damaged + LastKnown, Guarantee]
  no Void
  R = One implies no Behind
}

-- Whether a leader with this ISR would advance the high watermark, and the replicas that it waits for, now and after a response.
-- A request that can still be rejected does not count.
pred opens[l: Broker, isr: set Broker] { some isr and leading[l] and many[isr, capped[l.viewM]] and spans[isr, capped[l.viewR]] }
fun awaited[l: Broker]: set Broker { l.viewIsr + (some l.answer => l.pending else none) }

pred currentLeaderKnows {
  all l: Current.leads & Up | l.view = Current implies {
    Isr in awaited[l]
    some l.answer implies Isr in l.answer
    opens[l, l.viewIsr] implies Elr + LastKnown in awaited[l]
    opens[l, l.answer] implies Elr + LastKnown in l.answer
    all f: Broker - l {
      f in candidates + (l.heard - (Unclean & Torn)) implies f.(l.ends) in f.log
    }
    Committed in l.start + l.hw
    all p: l.pending & l.heard | no l.answer implies l.start + l.hw in p.(l.ends)
  }
}

-- Records that a former leader may still commit, with respect to candidate b: followers of a later leader, and b, no longer report
-- to it. "max" are the replicas that it waits for.
fun stillWaitsFor[l, b: Broker, max: set Broker]: set Broker { { m: max - l | m.view != l.view or m = b } }
fun mayCommit[l, b: Broker, max: set Broker]: set Record { { r: l.log | all m: stillWaitsFor[l, b, max] | r in m.(l.ends) } }

pred harmless[l: Broker, isr, max: set Broker] {
  opens[l, isr] implies {
    all b: candidates - l | some stillWaitsFor[l, b, max] and mayCommit[l, b, max] in b.log
    all b: Broker - l | (leading[b] and b.view in l.view.nexts) implies
      some stillWaitsFor[l, b, max] and mayCommit[l, b, max] in b.start
    -- a candidate that this leader does not know was added by a later one
    all b: candidates - l - max | b.view in l.view.nexts
  }
}

pred formerLeadersAreHarmless {
  all l: Broker, b: candidates - l | (leading[l] and b.view = l.view) implies Committed in l.log
  all l: Broker | (leading[l] and l.view != Current) implies harmless[l, l.viewIsr, awaited[l]] and harmless[l, l.answer, l.answer]
}

-- Replicas with the committed records are candidates or damaged.
pred holdersAreKnown {
  (some Committed or some l: Broker | opens[l, l.viewIsr] or opens[l, l.answer]) implies spans[Isr + Elr + LastKnown + Damaged, Guarantee]
  all l: Current.leads & Up | (l.view = Current and not lower[Guarantee, capped[l.viewR]] = Guarantee) implies
    spans[Isr + Elr + LastKnown + Damaged, Guarantee]
}

pred invariant {
  logsAgree and viewsAreOfThePast and partitionIsInOrder and currentLeaderKnows and formerLeadersAreHarmless and holdersAreKnown
  candidatesHold
}

assert HoldsAtFirst { (patched and init) implies invariant }
assert HoldsFromStepToStep { (patched and invariant and step and after no Void) implies after invariant }

---------------------------------------------------------------------------------------------------------------------------------
-- Commands. "3 Rack" and the like are bounds, "steps" counts states.

-- A new partition is in a state of the invariant.
First: check HoldsAtFirst for 4 but 3 Rack, exactly 3 Record, exactly 6 Epoch, exactly 1 steps expect 0

-- Every step keeps the invariant, so the promise is kept for any number of steps.
Step: check HoldsFromStepToStep for 3 but exactly 3 Record, exactly 5 Epoch, exactly 2 steps expect 0

-- The same with four brokers.
Step4: check HoldsFromStepToStep for 4 but 3 Rack, exactly 3 Record, exactly 6 Epoch, exactly 2 steps expect 0

-- The promise itself, without the invariant, in a few steps.
Short: check NothingIsLost for 2 but exactly 2 Record, exactly 3 Epoch, exactly 5 steps expect 0

pred without[missing: set Feature] { behaviour and Patched = Feature - missing }

pred onlyEvents[events: set Event] { always Now in events + Stutter }

-- R is 2, and only one rack fails, which is destroyed. The events are restricted, so that the pictures are easy to follow: the
-- leader knows the ISR when it appends, and brokers register before they assign directories.
pred oneRackFails {
  always (R = Two and no Void)
  some r: Rack | always ((Now = Destroy implies Whom.rack = r) and (Now = Fence implies no Whom & Up))
  eventually Now = Destroy
  always (Now = Append implies Current.leads.viewIsr = Isr) and always (Now = Assign implies Whom in Up)
}

-- R is 2, one rack is destroyed, and a broker elsewhere is killed.
pred oneRackDestroyedOtherKilled {
  onlyEvents[Append + Fetch + Kill + Fence + Destroy + Register + Assign + Unfence]
  some r: Rack | always ((Now = Destroy implies Whom.rack = r) and (Now = Kill implies Whom.rack != r))
  always (R = Two and (Now = Fence implies no Whom & Up)) and Isr = Broker
}

pred allNamed { Named = Broker }

-- A rack leaves the ISR after a record was acknowledged, and M is reached without it. Then the other one is destroyed.
pred isrLeavesOneRack {
  allNamed and oneRackFails and onlyEvents[Append + Fetch + Shrink + Destroy + Register + Assign + Unfence]
  Isr = Broker and M = One and always (Now = Shrink implies some Acked)
}

pred seenIsLost { some l: Current.leads & Up | some Committed - l.log }
pred ackedIsLost { some l: Current.leads & Up | some Acked - l.log }

-- Without the check at the high watermark a record that consumers have read is lost with one rack.
NoHighWatermarkGate: run {
  without[HighWatermarkGate] and oneRackFails and onlyEvents[Append + Fetch + Shrink + Answer + Destroy + Fence]
  Isr = Broker and M = Two and eventually seenIsLost
} for 2 but exactly 3 Broker, exactly 1 Record, exactly 3 Epoch, exactly 8 steps expect 1

-- If the checks count a replica that is about to join the ISR, an acknowledged record is lost with one rack.
GateOnMaximalIsr: run {
  without[CommittedIsr] and oneRackFails and onlyEvents[Append + Fetch + Shrink + Answer + AskToAdd + Destroy + Fence]
  M = Two and eventually ackedIsLost
} for 2 but exactly 4 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- Without rack-aware ELR an acknowledged record is lost with one rack, although another still has it.
NoRackAwareElr: run {
  without[RackAwareElr] and isrLeavesOneRack and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 8 steps expect 1

-- If R=2 is in the properties of brokers alone, an acknowledged record is lost with one rack.
NoMetadataR: run {
  without[MetadataR] and isrLeavesOneRack and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 8 steps expect 1

-- If brokers without a rack count as one rack, an acknowledged record is lost with one rack.
UnnamedRackCounts: run {
  without[NoUnnamedRack] and oneRackFails and onlyEvents[Append + Fetch + Destroy + Register + Assign + Unfence]
  Isr = Broker and always (Now = Destroy implies Whom = Broker) and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- If killed replicas are forgotten, an acknowledged record is lost with one rack.
NoKilledMemory: run {
  without[KilledMemory] and allNamed and oneRackDestroyedOtherKilled
  always (Now = Kill implies log' = log) and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- With the check before the append alone an acknowledged record is lost with one rack.
AppendGateAlone: run {
  without[HighWatermarkGate + AfterAppendGate] and oneRackFails and onlyEvents[Append + Shrink + Answer + Destroy + Fence]
  Isr = Broker and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 6 steps expect 1

-- If a lowered M clears the ELR while racks are missing, an acknowledged record is lost with one rack.
NoKeptElr: run {
  without[KeptElr] and oneRackFails and onlyEvents[Append + Fetch + Shrink + Alter + Destroy + Register + Assign + Unfence]
  Isr = Broker and M = Two and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- If a leader that has not seen a raised R may shrink the ISR, a seen record is lost though all it does is stop.
NoRaiseGuard: run {
  without[RaiseGuard] and onlyEvents[Append + Shrink + Answer + Alter + Stop]
  Isr = Broker and R = One and always M = One and no disj a, b: Broker | a.rack = b.rack
  always (no Void and no Unclean) and eventually seenIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 2 Epoch, exactly 6 steps expect 1

-- If a leader requires a raised R only when it has applied configs, a seen record is lost though all it does is stop.
NoImageFirst: run {
  without[ImageFirst] and onlyEvents[Append + Alter + Fence + Unfence + Begin + Stop]
  Isr = Broker and R = One and always M = One and no disj a, b: Broker | a.rack = b.rack
  always (no Void and no Unclean) and eventually seenIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 2 Epoch, exactly 7 steps expect 1

-- If a leader requires a raised M only when it has applied configs, and one image raises M and removes a replica from the
-- ISR, an acknowledged record is lost although brokers only stop.
RaisedM: run {
  without[ImageFirstOfM] and onlyEvents[Append + Fetch + Alter + Fence + Unfence + Begin + Learn + Stop]
  always (R = Two and (Now = Fence implies Current.leads not in Whom) and (Now = Begin implies after Now = Learn))
  Isr = Broker and M = Two and always (no Void and no Unclean) and eventually ackedIsLost
} for 3 but 2 Rack, exactly 3 Broker, exactly 1 Record, exactly 3 Epoch, exactly 10 steps expect 1

-- Where the promise ends: R racks are destroyed.
TwoRacksDestroyed: run {
  without[none] and onlyEvents[Append + Fetch + Destroy + Register + Assign + Unfence]
  always R = Two and Isr = Broker and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- Where the promise ends: R - 1 racks are destroyed, and a broker elsewhere loses its power and what was not flushed.
PowerLostElsewhere: run {
  without[none] and oneRackDestroyedOtherKilled and eventually ackedIsLost
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- It happens: a rack is destroyed, and a replica is elected from the ELR that has the acknowledged record.
ElrLeads: run {
  without[none] and oneRackFails and onlyEvents[Append + Fetch + Shrink + Destroy + Fence]
  Isr = Broker and M = Two and always (Now = Shrink implies some Acked)
  eventually (some l: Elr & Up | some Acked & l.log and after l = Current.leads)
} for 2 but exactly 3 Broker, exactly 1 Record, exactly 3 Epoch, exactly 7 steps expect 1

-- It happens: a rack is destroyed, and a killed replica elsewhere that has the acknowledged record is awaited and elected.
KilledLeads: run {
  without[none] and oneRackDestroyedOtherKilled and always no Void
  eventually (some l: LastKnown & Up | some Acked & l.log and no Isr and after l = Current.leads)
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 3 Epoch, exactly 9 steps expect 1

-- It happens: the last known leader is elected with an acknowledged record.
LastKnownLeads: run {
  without[none] and eventually (some l: LastKnown | some Acked & l.log and after (l = Current.leads and l in Up))
} for 1 but exactly 1 Record, exactly 3 Epoch, exactly 5 steps expect 1

-- It happens: R is raised from 1 while there is no leader, and the last leader is elected when it returns.
LastLeaderStays: run {
  without[none] and onlyEvents[Append + Stop + Fence + Alter + Register + Unfence]
  R = One and eventually (Now = Alter and R' = Two and no Isr and some l: Elr & LastKnown | some Acked & l.log and eventually l = Current.leads)
} for 2 but exactly 1 Broker, exactly 1 Record, exactly 3 Epoch, exactly 7 steps expect 1

-- It happens: records are acknowledged where R is above the replication factor.
CappedByReplicas: run { without[none] and always R = Three and eventually some Acked }
for 2 but exactly 2 Broker, exactly 1 Record, exactly 1 Epoch, exactly 3 steps expect 1

-- It happens: a lowered R lets a record through that waited.
LoweredLetsThrough: run {
  without[none] and onlyEvents[Append + Alter + Learn]
  R = Two and one Isr and eventually (Now = Learn and Committed' != Committed)
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 1 Epoch, exactly 4 steps expect 1

-- It happens: a leader that has been replaced and does not know advances its high watermark.
FormerLeaderCommits: run {
  without[none] and always (R = Two and no Void)
  eventually (Now = Fetch and Committed' != Committed and all l: Broker | l.hw' = l.hw or l.view != Current)
} for 3 but exactly 1 Record, exactly 2 Epoch, exactly 5 steps expect 1

-- It happens: the controller does not attempt a request, since the leader may not know of a raised R.
NotAttempted: run {
  without[none] and onlyEvents[Alter]
  eventually (some l: Isr, f: Isr - l | leading[l] and l.view = Current and l.viewIsr = Isr and not accepted[l, Isr - f])
} for 2 but exactly 2 Broker, exactly 1 Record, exactly 1 Epoch, exactly 2 steps expect 1
