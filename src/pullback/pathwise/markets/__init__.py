"""Markets with exact answers: one file each, all of them a `Market`."""

from collections.abc import Callable, Mapping

from pullback.pathwise.markets.asian import AsianCall
from pullback.pathwise.markets.autocall import WorstOfAutocall
from pullback.pathwise.markets.bachelier import BachelierBasket, BasketCall, reference_problem
from pullback.pathwise.markets.barrier import UpAndOutCall
from pullback.pathwise.markets.bermudan_put import BermudanPut
from pullback.pathwise.markets.bermudan_swaption import BermudanSwaption
from pullback.pathwise.markets.black_scholes import BlackScholesCall
from pullback.pathwise.markets.digital import DigitalCall
from pullback.pathwise.markets.heston import HestonCall
from pullback.pathwise.markets.market import Market
from pullback.pathwise.markets.two_asset import TwoAssetCall

MARKETS: Mapping[str, Callable[..., Market]] = {
    "black-scholes": BlackScholesCall,
    "digital": DigitalCall,
    "up-and-out": UpAndOutCall,
    "basket": BasketCall.random,
    "heston": HestonCall,
    "asian": AsianCall,
    "two-asset": TwoAssetCall,
    "autocall": WorstOfAutocall,
    "bermudan-put": BermudanPut,
    "bermudan-swaption": BermudanSwaption,
}

__all__ = [
    "MARKETS",
    "AsianCall",
    "BachelierBasket",
    "BasketCall",
    "BermudanPut",
    "BermudanSwaption",
    "BlackScholesCall",
    "DigitalCall",
    "HestonCall",
    "Market",
    "TwoAssetCall",
    "UpAndOutCall",
    "WorstOfAutocall",
    "reference_problem",
]
