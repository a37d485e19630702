"""Check that unpatched clients get only errors that they know.

Reads ``intend``, ``produce`` and ``txn`` events, and ``KnownErrorsDetails``. A code that is not in a client's list gets
another name that is not among them. A client with its own list does not retry after such a code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyhooks.checkers.record_view import clients_of
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import PATCHED, KnownErrorsDetails, ProduceDetails, TransactionDetails

# Value that the workload records if the client reported nothing at all.
SILENT = frozenset({"not-reported"})


def check_known_errors(events: Sequence[Event]) -> Verdict:
    """Check that clients know the names of all errors that their runs report; runs of patched clients do not count.

    Unknown if there was no attempt of an unpatched client, or if a client ended without a response. Also unknown if the
    client that reported an error is not recorded, or the errors that it knows are not.
    """
    clients = clients_of(events)
    known = {details.client: frozenset(details.names) for _, details in KnownErrorsDetails.each(events)}
    findings = Findings()
    known_errors: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for event in events:
        result = ProduceDetails.of(event) or TransactionDetails.of(event)
        if result is None:
            continue
        client, error = clients.get(result.run or ""), result.exception
        if client == PATCHED or (client is None and error is None):
            continue
        subject = f"{result.key if isinstance(result, ProduceDetails) else result.txn} of run {result.run}"
        if client is None:
            findings.missing.append(f"the client that reported {error} for {subject} is not recorded")
        elif client not in known:
            findings.missing.append(f"the errors that a client {client} knows are not recorded")
        else:
            judged[client] += 1
            if error in SILENT:
                findings.missing.append(f"client {client}: no result of {subject}")
            elif error is not None and error not in known[client]:
                findings.wrong.append(f"client {client} does not know {error}, which it got for {subject}")
            elif error is not None:
                known_errors[f"{client}: {error.rpartition('.')[2]}"] += 1
    if not judged:
        findings.missing.append("no attempt of a client that is not patched")
    findings.missing += [f"no attempt of a client {client}" for client in sorted(known.keys() - judged.keys())]
    findings.notes += [f"{count} attempts of client {name}" for name, count in sorted(known_errors.items())]
    return findings.verdict("known", unique=True)
