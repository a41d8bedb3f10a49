"""Tools for the tests of applications that use rota, and of stores written for it.

`StoreContract` is every sentence of the store's protocol as a test: a driver subclasses it and says
how an empty store is opened. `StoreClock` is a store's clock in the hands of a test.
"""

from __future__ import annotations

from rota.testing.contract import StoreClock, StoreContract, VolatileStoreContract

__all__ = ["StoreClock", "StoreContract", "VolatileStoreContract"]
