"""What 002 says about content, one claim per test: sections 2.1, 2.7 and 3.2.6, with errata B1 and B2."""

from __future__ import annotations

from penstock.content.bloom import EncodingScheme, encoding_covers, matches
from penstock.content.language.evaluate import filter_matches
from penstock.content.language.parser import parse_predicate
from penstock.content.predicate import Equals, Range
from penstock.content.relations import covers, disjoint, overlaps, witness

SCHEME = EncodingScheme()
TWO_STOCKS = (
    "(symbol = 'IBM' AND market = 'NYSE' AND price < 120) OR (symbol = 'AMD' AND market = 'NYSE' AND price < 100)"
)


def encoded(text: str) -> int:
    """The bits of a predicate that has one filter."""
    (selected,) = parse_predicate(text).filters
    return SCHEME.encode_filter(selected)


def test_2_1_a_constraint_demands_that_the_attribute_exists_and_has_the_type() -> None:
    predicate = parse_predicate("price < 120")
    assert predicate.matches({"price": 119})
    assert not predicate.matches({"price": 120})
    assert not predicate.matches({"volume": 5})
    assert not predicate.matches({"price": "cheap"})


def test_2_1_a_filter_is_a_conjunction_of_constraints() -> None:
    (selected,) = parse_predicate("symbol = 'IBM' AND price < 120").filters
    assert selected.constraints == (Range("price", None, 120, high_open=True), Equals("symbol", "IBM"))
    assert filter_matches(selected, {"symbol": "IBM", "price": 110})
    assert not filter_matches(selected, {"symbol": "AMD", "price": 110})


def test_2_1_a_predicate_is_a_disjunction_of_filters() -> None:
    predicate = parse_predicate(TWO_STOCKS)
    assert [len(selected.constraints) for selected in predicate.filters] == [3, 3]
    assert predicate.matches({"symbol": "IBM", "market": "NYSE", "price": 110})
    assert predicate.matches({"symbol": "AMD", "market": "NYSE", "price": 99.5, "volume": 7})
    assert not predicate.matches({"symbol": "AMD", "market": "NYSE", "price": 110})
    assert not predicate.matches({"symbol": "IBM", "market": "LSE", "price": 110})


def test_2_1_strings_can_be_matched_by_substring_prefix_and_suffix() -> None:
    texts = {"substring": "note LIKE '%gen%'", "prefix": "note LIKE 'urg%'", "suffix": "note LIKE '%ent'"}
    assert all(parse_predicate(text).matches({"note": "urgent"}) for text in texts.values())
    assert not any(parse_predicate(text).matches({"note": "calm"}) for text in texts.values())


def test_2_1_one_subscription_covers_another_if_it_matches_all_that_the_other_matches() -> None:
    one_stock = parse_predicate("symbol = 'IBM' AND market = 'NYSE' AND price BETWEEN 10 AND 20")
    assert covers(parse_predicate(TWO_STOCKS), one_stock)
    assert not covers(one_stock, parse_predicate(TWO_STOCKS))


def test_2_1_subscriptions_overlap_if_some_message_matches_both() -> None:
    cheap, ibm = parse_predicate("price < 100"), parse_predicate("symbol = 'IBM' AND price > 50")
    assert overlaps(cheap, ibm)
    common = witness(cheap, ibm)
    assert common is not None
    assert cheap.matches(common)
    assert ibm.matches(common)
    assert disjoint(cheap, parse_predicate("price > 200"))


def test_2_7_a_message_whose_bits_include_those_of_one_filter_matches_the_predicate() -> None:
    announced = SCHEME.routing_encodings(parse_predicate(TWO_STOCKS))
    bits = SCHEME.encode_message({"symbol": "AMD", "market": "NYSE", "price": 99})
    assert [matches(encoding, bits) for encoding in announced].count(True) == 1


def test_2_7_the_encoding_may_match_too_much_but_never_too_little() -> None:
    bits = SCHEME.encode_message({"symbol": "IBM", "market": "NYSE", "price": 500})
    assert not parse_predicate(TWO_STOCKS).matches({"symbol": "IBM", "market": "NYSE", "price": 500})
    assert any(matches(encoding, bits) for encoding in SCHEME.routing_encodings(parse_predicate(TWO_STOCKS)))


def test_3_2_6_the_tags_of_a_matching_message_include_those_of_the_subscription() -> None:
    message = {"event": "disk-failure", "cause": "overheating", "priority": "high"}
    assert matches(encoded("event = 'disk-failure' AND priority = 'high'"), SCHEME.encode_message(message))
    assert not matches(encoded("event = 'disk-failure' AND priority = 'low'"), SCHEME.encode_message(message))


def test_erratum_b1_a_covering_filter_has_the_fewer_bits_not_the_more() -> None:
    """2.7 says "B2 covers B1" for bits(B1) subset bits(B2), which is message over filter. Of two filters the one with
    fewer demands, hence fewer bits, matches more; the algorithms of chapter 5 need that direction."""
    general, specific = encoded("symbol = 'IBM'"), encoded("symbol = 'IBM' AND market = 'NYSE'")
    assert encoding_covers(general, specific)
    assert not encoding_covers(specific, general)
    assert covers(parse_predicate("symbol = 'IBM'"), parse_predicate("symbol = 'IBM' AND market = 'NYSE'"))


def test_erratum_b1_covering_by_bits_proves_nothing_for_ranges() -> None:
    low, high = "price < 10", "price > 20"
    assert encoding_covers(encoded(low), encoded(high))
    assert not covers(parse_predicate(low), parse_predicate(high))


def test_erratum_b2_constraints_other_than_equality_ask_for_existence() -> None:
    """Tags of values alone would lose these matches: no message has a tag that says "less than 120"."""
    bits = SCHEME.encode_message({"price": 119, "note": "urgent", "size": 3})
    for text in ("price < 120", "note LIKE '%gent'", "size <> 4", "EXISTS price", "price IN (119, 'none')"):
        assert matches(encoded(text), bits), text
    assert encoded("price < 120") == encoded("EXISTS price")


def test_erratum_b2_a_range_inside_a_fixed_interval_asks_for_the_interval_too() -> None:
    narrow = encoded("price BETWEEN 17 AND 30")
    assert matches(narrow, SCHEME.encode_message({"price": 18.5}))
    assert matches(narrow, SCHEME.encode_message({"price": 31})), "the interval from 16 to 32 is all the bits say"
    assert not matches(narrow, SCHEME.encode_message({"price": 32}))
