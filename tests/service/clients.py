"""Both kinds of client, called alike."""

import asyncio

from hamtarget.client import AsyncClient


class Awaited:
    """A client of asyncio whose calls are awaited one by one: called as the other one is."""

    def __init__(self, address, **how):
        self._runner = asyncio.Runner()
        self._client = AsyncClient(address, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name):
        async def call(*arguments, **named):
            return await getattr(self._client, name)(*arguments, **named)

        return lambda *arguments, **named: self._runner.run(call(*arguments, **named))
