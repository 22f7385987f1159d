"""Calls the handler with one message on an operator's request. Java: ``consumeMessageDirectly``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from rocketmq_py.client.user_functions import users_traceback
from rocketmq_py.consumer.group.handler_results import (
    CommitOffset,
    ConsumeLater,
    ConsumeResult,
    RollbackOffset,
    SplitResult,
    Suspend,
    unsupported_result,
)
from rocketmq_py.consumer.push.handler_executor import HandlerExecutor, corruption_error
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.bodies import ConsumeMessageDirectlyResult

logger: Final = LibraryLogger("rocketmq_py.consumer")

_CODE_OF_RESULT: Mapping[type[object], str] = {
    ConsumeLater: "CR_LATER",
    Suspend: "CR_LATER",
    CommitOffset: "CR_COMMIT",
    RollbackOffset: "CR_ROLLBACK",
}


class DirectConsumption:
    """Calls the handler of a push consumer on operators' requests.

    Args:
        executor: calls the handler.
        config: the consumer's settings.
    """

    def __init__(self, executor: HandlerExecutor, config: PushConsumerSettings) -> None:
        self._executor = executor
        self._config = config

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Call the handler and return the outcome. The message is neither acknowledged nor redelivered."""
        started = trio.current_time()
        remark: str | None = None
        try:
            if message.corruption is not None:
                raise corruption_error(message)
            result = await self._executor.call(message if self._config.batch_size is None else [message])
            if isinstance(result, SplitResult):
                remark = next(iter(result.dead_letters.values()), None)
                result = result.result
            if result is not None and not isinstance(result, ConsumeResult):
                raise unsupported_result(result, orderly=self._config.orderly)
        except Exception as error:  # logged
            logger.error(
                "handler failed on an operator's request: message=%s topic=%s",
                message.message_id, message.topic, exc_info=users_traceback(error),
            )  # fmt: skip
            code, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        else:
            code = _CODE_OF_RESULT.get(type(result), "CR_SUCCESS") if remark is None else "CR_THROW_EXCEPTION"
        return ConsumeMessageDirectlyResult(
            consume_result=code,
            order=self._config.orderly,
            auto_commit=self._config.auto_commit,
            remark=remark,
            spent_time_mills=round((trio.current_time() - started) * 1000),
        )
