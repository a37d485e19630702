/*
 * One partition of a topic with min.insync.replicas (M) and min.insync.racks (R) on Apache Kafka 4.3.1 with the series in
 * patch/4.3.1: who is in the ISR and the ELR, who leads, how far the high watermark is, and what racks that fail can do to it.
 *
 * Names in the comments are of Kafka: PCB = PartitionChangeBuilder, RCM = ReplicationControlManager, CCM =
 * ConfigurationControlManager (all of the controller), Partition = kafka.cluster.Partition (of brokers). fixes/, gate/ and
 * elr/ are parts of the series. kip/formal.md tells what is checked, within which bounds, and what is not in the model.
 *
 * All brokers of the model are the replicas. A step is one thing that happens; Stutter is none. Where Kafka is determined by
 * something that is not here (the order of replicas, how long a follower may lag) the model may do any of it.
 */
module isr

open util/ordering[Epoch] as epochs
open util/ordering[Record] as records

-- What the series consists of, so that a piece can be taken out. In gate/: AppendGate: Partition.appendRecordsToLeader.
-- AfterAppendGate: Partition.checkEnoughReplicasReachOffset. HighWatermarkGate: Partition.maybeIncrementLeaderHW. CommittedIsr:
-- all three count PartitionState.isr and not maximalIsr. ImageFirst: Partition.minInSyncRacksOfImage. In elr/: RackAwareElr:
-- PCB.maybePopulateTargetElr. RaiseGuard: RCM.validateAlterPartitionData, for M in fixes/. KeptElr: RCM.withRecordsToKeepElrs.
-- KilledMemory: PCB.populateTargetLastKnownElr. In fixes/: ImageFirstOfM: Partition.minInSyncReplicasOfImage.
-- MetadataR: R is set in the metadata alone, so that the controller knows it.
-- NoUnnamedRack: a broker without broker.rack counts for no rack; without it all of them count as one.
abstract sig Feature {}
one sig AppendGate, AfterAppendGate, HighWatermarkGate, CommittedIsr, RackAwareElr, RaiseGuard, KeptElr, ImageFirst, ImageFirstOfM,
  KilledMemory, MetadataR, NoUnnamedRack extends Feature {}
sig Patched in Feature {}

-- A number of replicas or of racks. Three of each are the most that is ever required here.
abstract sig Level {}
one sig One, Two, Three extends Level {}

-- Where brokers are, and what fails at once. Kafka knows the rack of a broker only if the broker is Named, by broker.rack.
sig Rack {}
one sig Unnamed {}

-- Records in the order in which they are appended by whomever. A log is a set of them: two logs that share a record share all
-- before it, since followers copy from the start and truncate to what they have in common with their leader.
sig Record {}
sig AcksAll in Record {} -- sent with acks=all; the others with acks=1

-- Leader epochs (PartitionRegistration.leaderEpoch), and who leads in them, if anybody.
sig Epoch { leads: lone Broker }

sig Broker {
  rack: one Rack,

  -- on disk
  var log: set Record,
  var hw: set Record, -- what is below the high watermark, as this broker knows it

  -- what a running broker knows of the partition: Partition.leaderEpoch; of a leader only: PartitionState.isr, the replica that it
  -- has asked to add (PendingExpandIsr), the ISR in the answer to its request, on its way (AlterPartitionResponse),
  -- leaderEpochStartOffset, Replica.logEndOffset, and of whom it has heard since they registered (Replica.brokerEpoch)
  var view: lone Epoch,
  var viewIsr: set Broker,
  var pending: lone Broker,
  var answer: set Broker,
  var start: set Record,
  var ends: Broker -> Record,
  var heard: set Broker,

  -- what this broker requires: Partition.minInSyncRacksOf, Partition.effectiveMinIsr, both before they are capped
  var viewR: one Level,
  var viewM: one Level
}
sig Named in Broker {}

-- What the controller knows: PartitionRegistration (isr, elr, lastKnownElr, leaderEpoch), BrokerRegistration.fenced, whose
-- registration lacks the directory that the replica is assigned to (hasOnlineDir), the configs of the topic, and which brokers
-- have not reported yet that they know of the last raise (CCM.minIsrOffset). The order of lastKnownElr is left out: any
-- member may be the first.
var sig Isr in Broker {}
var sig Elr in Broker {}
var sig LastKnown in Broker {}
var one sig Current in Epoch {}
var sig Active in Broker {}
var sig Mismatched in Broker {}
var one sig R in Level {}
var one sig M in Level {}
var sig Behind in Broker {}

-- What is so: whose process runs, who would register as after an unclean shutdown (no .kafka_cleanshutdown on its disk), who has
-- a new directory, which the replica has not been assigned to, and who lost a part of its log and has not joined the ISR since.
var sig Up in Broker {}
var sig Unclean in Broker {}
var sig Replaced in Broker {}
var sig Torn in Broker {}

-- For the promise: records that were below the high watermark of some leader, so that consumers may have seen them; those of them
-- of which a producer with acks=all was told; the appended ones; members of the ISR, ELR or last known ELR that lost a part of
-- their logs and are not in the ISR again; and the least number of racks that was required since the ISR spanned that many.
var sig Committed in Record {}
var sig Acked in Record {}
var sig Appended in Record {}
var sig Damaged in Broker {}
var one sig Guarantee in Level {}
var lone sig Void in Epoch {} -- since when as many are damaged: nothing is promised from then on

-- For pictures: what happens in a step, and to whom.
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

-- ClusterControlManager.racks: the racks of brokers as far as Kafka knows them
fun knownRacks[s: set Broker]: set Rack + Unnamed {
  (s & Named).rack + (NoUnnamedRack not in Patched and s not in Named => Unnamed else none)
}

pred atLeast[s: set Rack + Unnamed, k: Level] {
  k = One => some s else k = Two => not lone s else some disj x, y, z: Rack + Unnamed | x + y + z in s
}

-- One rack is required of nobody, so it need not be known.
pred spans[s: set Broker, k: Level] { k = One => some s else atLeast[knownRacks[s], k] }

---------------------------------------------------------------------------------------------------------------------------------
-- The controller changes the partition

-- CCM.minInSyncRacks
fun minRacks: Level { MetadataR in Patched => R else One }

pred remembersKilled { KilledMemory in Patched and minRacks != One }

-- Whether the ELR is to be remembered: the first condition of PCB.maybePopulateTargetElr.
pred forgetful[isr: set Broker] {
  many[isr, capped[M]]
  RackAwareElr in Patched implies spans[isr, capped[minRacks]]
}

-- RCM.isShort
pred short[isr: set Broker] { not (many[isr, capped[M]] and spans[isr, capped[minRacks]]) }

-- PCB.build without reassignments, unclean election off. "isr" is targetIsr, "unclean" uncleanShutdownReplicas, "lost"
-- lostReplicas; "picks" are those that may be chosen: all, or the preferred one.
pred change[isr, unclean, lost, picks: set Broker] {
  let elr = forgetful[isr] => none else Elr + Isr - isr - unclean - lost, -- maybePopulateTargetElr
      candidates = forgetful[isr] => none else Current.leads + LastKnown + (Isr + Elr - elr) - isr, -- populateTargetLastKnownElr
      kept = no isr + elr + candidates - lost => candidates else candidates - lost,
      fit = Active' - Mismatched', -- isAcceptableLeader
      valid = fit & (some isr => isr else elr) { -- isValidNewLeader
    (some Current.leads & valid and Broker in picks) => { -- electAnyLeader: the leader meets all the constraints
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

-- canElectLastKnownLeader; electableLastKnownLeader, which waits as long as the first is not fit
pred electsLastKnown[isrAndElr, fit: set Broker] {
  no isrAndElr
  some fit
  Current' = Current.next
  some Current'.leads & fit
}

-- The books of the promise after a change; "harmed" are members that have been damaged by it. Racks of damaged brokers are those
-- where they are, whether Kafka knows them or not. A remembered replica that lost a part of its log in its directory, as when
-- the power fails, may be elected before those that kept all: as long as there is one, each remembered one counts.
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

-- Remembered replicas that are back, without a part of their logs, in the directories that they had
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

-- The members whose racks count, of a leader that has this ISR and this pending member.
fun counted[isr, pending: set Broker]: set Broker { CommittedIsr in Patched => isr else isr + pending }

-- Partition.maybeIncrementLeaderHW, on what the leader knows after the step; then the requests that wait for it are answered
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

-- Followers truncate to what they have in common with their leader and fetch as much as they get (AbstractFetcherThread). The
-- leader learns of their ends by the same request, that is of what they had before, or by the next one that comes at once
-- (Partition.updateFollowerFetchState).
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
  l.heard' = l.heard + followers - (l.pending - l.heard) -- a request that is under way keeps the broker epoch that it has
  all b: Broker - l - followers | b.log' = b.log and b.hw' = b.hw
  l.log' = l.log
  advance[l]
  Appended' = Appended
  view' = view and viewIsr' = viewIsr and pending' = pending and answer' = answer and start' = start and viewR' = viewR and viewM' = viewM
  samePartition and sameConfigs and sameBrokers
}

---------------------------------------------------------------------------------------------------------------------------------
-- The leader changes the ISR

-- RCM.validateAlterPartitionData: the request is of the leader, who knows the partition as it is, and all members are fit
-- (ineligibleReplicasForIsr); a leader that may not know yet of a raised R may not make the ISR short while somebody is, or
-- becomes, eligible or remembered.
pred accepted[l: Broker, isr: set Broker] {
  l.view = Current and Current.leads = l and l.viewIsr = Isr
  isr in Active
  not (RaiseGuard in Patched and R != One and l in Behind and (some Elr + LastKnown or Isr not in isr) and short[isr])
}

-- Partition.maybeExpandIsr, prepareIsrExpand: the follower has what the leader had when it took over, and what is committed
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

-- RCM.alterPartition adds the pending member. One that has registered again since the leader heard of it is not heard of.
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

-- The request failed: Partition.submitAlterPartition goes back to the last committed state
pred reject[l: Broker] {
  Now = Reject and Whom = l.pending
  leading[l]
  some l.pending and no l.answer
  pending' = pending - l -> Broker
  view' = view and viewIsr' = viewIsr and answer' = answer and start' = start and ends' = ends and heard' = heard and viewR' = viewR and viewM' = viewM
  samePartition and sameConfigs and sameBrokers and sameLogs
}

-- Partition.maybeShrinkIsr and RCM.alterPartition at once. The leader goes on to wait for those that it asked to remove
-- (PendingShrinkIsr.maximalIsr) until it is answered.
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

-- Partition.handleAlterPartitionUpdate: the leader takes over the ISR, and nothing of the configs
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

-- A broker takes over the partition from the metadata: Partition.makeLeader or makeFollower
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

-- A broker applies the metadata, then its heartbeat reports that. What it skips is as if it had not been on time.
pred learn[b: Broker] {
  Now = Learn and Whom = b
  viewR' = viewR - b -> Level + b -> R
  viewM' = viewM - b -> Level + b -> M
  Behind' = Behind - b
  applyPartition[b]
}

-- What an image says of a config. Of its default it may say nothing, and then the configs that the broker has applied count.
fun said[image, applied: Level]: set Level { image + (image = One => applied else none) }

-- BrokerMetadataPublisher applies partitions before configs. The leader requires what the image says all the same, and that
-- alone, lower or higher: Partition.updateMinIsrOfImage. Of M the model has this where R matters; where it does not, what it has is
-- what its log has. The fixes require the M of the image wherever ELR is enabled.
pred begin[b: Broker] {
  Now = Begin and Whom = b
  b.viewR' in (ImageFirst in Patched => said[R, b.viewR] else b.viewR)
  b.viewM' in (ImageFirstOfM in Patched and R != One => said[M, b.viewM] else b.viewM)
  all other: Broker - b | other.viewR' = other.viewR and other.viewM' = other.viewM
  Behind' = Behind
  applyPartition[b]
}

---------------------------------------------------------------------------------------------------------------------------------
-- Brokers and racks fail and come back

-- A process that ends, or starts, knows nothing.
pred forget[bs: set Broker] {
  all b: bs | no b.view' and no b.viewIsr' and no b.pending' and no b.answer' and no b.start' and no b.ends' and no b.heard'
  all b: Broker - bs {
    b.view' = b.view and b.viewIsr' = b.viewIsr and b.pending' = b.pending and b.answer' = b.answer and b.start' = b.start and
    b.ends' = b.ends and b.heard' = b.heard
  }
  viewR' = viewR and viewM' = viewM
}

-- A process ends, and the controller does not know. If not in good order, what was not flushed may be gone.
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

-- Disks in one rack are replaced by empty ones, and what runs on them ends.
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

-- RCM.handleBrokerInControlledShutdown, then the process ends in good order.
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

-- RCM.handleBrokerFenced: heartbeats do not arrive, whether the broker runs or not.
pred fence[b: Broker] {
  Now = Fence and Whom = b
  b in Active
  Active' = Active - b
  (b in Isr => change[Isr - b, none, none, Broker] and account[none] else samePartition)
  Up' = Up and Unclean' = Unclean
  sameConfigs and sameLogs and sameViews and sameDirectories
}

-- A broker starts and registers, fenced: ClusterControlManager.registerBroker, RCM.handleBrokerShutdown. A member that kept its
-- log is not damaged, unless racks do not matter: KIP-966 forgets it.
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

-- RCM.handleAssignReplicasToDirs: the controller learns that the directory of a replica is another one. Only then is the former
-- known to be lost (RCM.isReplicaLost): if the broker has registered and the replica is eligible or remembered; or if the broker
-- has not, since the session of its previous incarnation has not expired.
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

-- RCM.maybeBalancePartitionLeaders, electPreferredLeader: the leader runs on, and may not know for long.
pred prefer[b: Broker] {
  Now = Prefer and Whom = b
  b in Isr & Active - Current.leads - Mismatched
  change[Isr, none, none, b]
  account[none]
  sameConfigs and sameBrokers and sameLogs and sameViews
}

-- An operator sets R or M: CCM.incrementalAlterConfigs with a ClearElrRecord, RCM.withRecordsToKeepElrs. M is not raised, and
-- nobody is late to learn of that, while one rack suffices: 4.3.1 has a gap there. The fixes close it, the model does not show that.
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
    -- when racks begin to matter the last leader alone stays
    Elr' = LastKnown & Elr
    LastKnown' = LastKnown
  } else {
    no Elr'
    no LastKnown'
  }
  Isr' = Isr and Current' = Current
  -- what is forgotten counts as damaged if racks did not matter until now, or do not from now on
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

-- A leader without a record that was committed truncates it everywhere; one whose disk is gone can do so only when it is back.
pred leaderHolds { all l: Current.leads - Unclean | Committed in l.log }

-- Whoever is in the ISR, ELR or last known ELR can be elected at any time, as long as its directory is the one that it had.
fun candidates: set Broker { Isr + Elr + LastKnown - Torn }
pred candidatesHold { all b: candidates | Committed in b.log }

assert NothingIsLost { (patched and behaviour and always no Void) implies always candidatesHold }

---------------------------------------------------------------------------------------------------------------------------------
-- Why it holds for any number of steps: what is true of every state, whatever has happened

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
        -- who has told this leader of its end is not led by a former one again
        (f in Up and some f.(b.ends)) implies f.view in b.view + b.view.nexts
        f in b.heard & Up implies some f.view and f.view in b.view + b.view.nexts
      }
      no b.(b.ends)
    }
    -- those that have reported that they know of the last raise do not require less
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
  no Isr implies lone Elr + (R != One => LastKnown else none) or all b: Elr + LastKnown | short[b] -- who leads first does not commit alone
  -- who has another directory has not registered, or the controller does not take it for the one that it was
  Replaced in Unclean + Mismatched
  -- who lost a part of its log leaves the ISR and the ELR when it registers
  Torn & (Isr + Elr + (R = One => LastKnown else none)) in Unclean
  no Damaged & Isr
  spans[Isr, capped[R]] implies no Damaged and Guarantee = capped[R]
  lower[Guarantee, capped[R]] = Guarantee
  not strikes[Damaged, Guarantee]
  some tornRemembered implies not strikes[Damaged + LastKnown, Guarantee]
  no Void
  R = One implies no Behind
}

-- Whether a leader with this ISR would advance the high watermark, and whom it waits for: as it is, and when it has its answer.
-- A request that may still be rejected does not count.
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

-- What a leader of before may still commit, as far as candidate b is concerned: who has moved on, or is b, tells it no more than
-- it knows. "max" are those that it waits for.
fun stillWaitsFor[l, b: Broker, max: set Broker]: set Broker { { m: max - l | m.view != l.view or m = b } }
fun mayCommit[l, b: Broker, max: set Broker]: set Record { { r: l.log | all m: stillWaitsFor[l, b, max] | r in m.(l.ends) } }

pred harmless[l: Broker, isr, max: set Broker] {
  opens[l, isr] implies {
    all b: candidates - l | some stillWaitsFor[l, b, max] and mayCommit[l, b, max] in b.log
    all b: Broker - l | (leading[b] and b.view in l.view.nexts) implies
      some stillWaitsFor[l, b, max] and mayCommit[l, b, max] in b.start
    -- who became a candidate without this leader was added by a later one
    all b: candidates - l - max | b.view in l.view.nexts
  }
}

pred formerLeadersAreHarmless {
  all l: Broker, b: candidates - l | (leading[l] and b.view = l.view) implies Committed in l.log
  all l: Broker | (leading[l] and l.view != Current) implies harmless[l, l.viewIsr, awaited[l]] and harmless[l, l.answer, l.answer]
}

-- Whoever held what is committed is a candidate, or damaged.
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
-- What is checked. "3 Rack" and the like are bounds, "steps" counts states.

-- A new partition is in a state of the invariant.
First: check HoldsAtFirst for 4 but 3 Rack, exactly 3 Record, exactly 6 Epoch, exactly 1 steps expect 0

-- Whatever step comes next, it keeps the invariant: so the promise holds for any number of steps.
Step: check HoldsFromStepToStep for 3 but exactly 3 Record, exactly 5 Epoch, exactly 2 steps expect 0

-- The same with four brokers.
Step4: check HoldsFromStepToStep for 4 but 3 Rack, exactly 3 Record, exactly 6 Epoch, exactly 2 steps expect 0

-- The promise itself, without the invariant, in a few steps.
Short: check NothingIsLost for 2 but exactly 2 Record, exactly 3 Epoch, exactly 5 steps expect 0

pred without[missing: set Feature] { behaviour and Patched = Feature - missing }

pred onlyEvents[events: set Event] { always Now in events + Stutter }

-- R is 2, and all that fails is one rack, which is destroyed. Few events may happen, in an order that is easily followed: the
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

-- It happens: racks begin to matter while nobody leads, and the last leader is elected when it is back.
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
