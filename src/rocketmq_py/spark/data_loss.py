"""Offsets that are lost: the error that names them, and the warning if the query continues without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from rocketmq_py.errors import DataLossError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue

logger: Final = LibraryLogger("rocketmq_py.spark")

LOSS_ADVICE = "; set failOnDataLoss to false to continue without them"


@attrs.frozen
class LostOffsets:
    """Offsets that a batch should read and that do not exist (any more).

    Args:
        queue: their queue.
        first: the first lost offset.
        end: the offset after the last one. None stands for all offsets from ``first`` on.
        cause: why they are lost, for the error.
    """

    queue: MessageQueue
    first: int
    end: int | None
    cause: str = "the broker does not have them any more"

    def error(self, advice: str = "") -> DataLossError:
        """Return the error that describes the loss."""
        return DataLossError(self.queue, self.first, self.end, advice, cause=self.cause)


def data_loss_error(losses: Sequence[LostOffsets]) -> DataLossError:
    """Return one error for all losses. It describes the first loss and counts the other queues."""
    others = len({loss.queue for loss in losses} - {losses[0].queue})
    queues = "queue has" if others == 1 else "queues have"
    more = f"; {others} more {queues} lost offsets" if others else ""
    return losses[0].error(more + LOSS_ADVICE)


def report_losses(losses: Sequence[LostOffsets], *, fail: bool) -> None:
    """Raise a DataLossError for the losses if ``fail`` is set, else log a warning for each."""
    if losses and fail:
        raise data_loss_error(losses)
    for loss in losses:
        logger.warning("%s; continuing without them", loss.error())
