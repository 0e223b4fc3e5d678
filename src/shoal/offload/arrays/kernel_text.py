"""A recipe as a module of LLVM: one loop over vectors, in which every intermediate result stays in a register.

The function `run` takes the address of 64-bit words: the rows, the elements of a row, for each input and output its
address and the bytes from row to row, the constants, and where the total goes. It answers whether a result was not
finite. The last vector of a row overlaps the one before, so a row must have as many elements as a vector.
"""

from __future__ import annotations

from shoal.offload.arrays.recipe import NAMES, TYPES, Argument, Recipe, Step, address, symbol

ENTRY = "run"

_SCALARS = {"d": "double", "f": "float", "l": "i64", "i": "i32", "?": "i8"}
_FLOAT_OPERATIONS = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_INTEGER_OPERATIONS = {"add": "add", "subtract": "sub", "multiply": "mul"}
_INTRINSICS = {"absolute": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
               "rint": "rint"}  # fmt: skip
_FLOAT_TESTS = {"less": "olt", "less_equal": "ole", "greater": "ogt", "greater_equal": "oge", "equal": "oeq",
                "not_equal": "une"}  # fmt: skip
_INTEGER_TESTS = {"less": "slt", "less_equal": "sle", "greater": "sgt", "greater_equal": "sge", "equal": "eq",
                  "not_equal": "ne"}  # fmt: skip
_BITS = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "bitwise_and": "and", "bitwise_or": "or",
         "bitwise_xor": "xor"}  # fmt: skip
_INFINITY = "0x7FF0000000000000"


def lanes_of(recipe: Recipe, register_bits: int) -> int:
    """The values of one vector: as many as a register has of the widest floating point or integer type."""
    chars = {char for char, _ in recipe.inputs} | {char for step in recipe.steps for char in step.loop + step.char}
    return register_bits // 8 // max((TYPES[char] for char in chars if char != "?"), default=1)


def functions_of(recipe: Recipe, lanes: int) -> set[str] | None:
    """The functions of the C library that it calls; None where one is missing."""
    found = {symbol(step.name, step.char, lanes) for step in recipe.steps if step.name in NAMES}
    return found if all(map(address, found)) else None


def module_text(recipe: Recipe, register_bits: int) -> str:
    """The module, without a triple."""
    return _Writer(recipe, lanes_of(recipe, register_bits)).module()


class _Writer:
    def __init__(self, recipe: Recipe, lanes: int) -> None:
        self._recipe, self._lanes = recipe, lanes
        self._head: list[str] = []
        self._row: list[str] = []
        self._body: list[str] = []
        self._declared: set[str] = set()
        self._names = 0
        self._constants: dict[int, str] = {}
        self._inputs: list[str] = []
        self._steps: list[str] = []
        self._bad = "%bad"
        self._mask = "i64" if any(step.char in "dl" for step in recipe.steps) else "i32"

    def _vector(self, char: str) -> str:
        return f"<{self._lanes} x {'i1' if char == '?' else _SCALARS[char]}>"

    def _new(self, text: str, where: list[str] | None = None) -> str:
        self._names += 1
        (self._body if where is None else where).append(f"%v{self._names} = {text}")
        return f"%v{self._names}"

    def _word(self, number: int, kind: str = "i64") -> str:
        place = self._new(f"getelementptr i64, ptr %words, i64 {number}", self._head)
        return self._new(f"load {kind}, ptr {place}, align 8", self._head)

    def _splat(self, value: str, char: str, where: list[str]) -> str:
        kind = f"<{self._lanes} x {_SCALARS[char]}>"
        one = self._new(f"insertelement {kind} poison, {_SCALARS[char]} {value}, i64 0", where)
        mask = f"<{self._lanes} x i32> zeroinitializer"
        all_ = self._new(f"shufflevector {kind} {one}, {kind} poison, {mask}", where)
        return self._truth(all_, where) if char == "?" else all_

    def _truth(self, value: str, where: list[str]) -> str:
        return self._new(f"icmp ne <{self._lanes} x i8> {value}, zeroinitializer", where)

    def module(self) -> str:
        recipe = self._recipe
        rows, count = self._word(0), self._word(1)
        pointers = [(self._word(2 + 2 * i, "ptr"), self._word(3 + 2 * i))
                    for i in range(len(recipe.inputs) + len(recipe.outputs))]  # fmt: skip
        first = 2 + 2 * len(pointers)
        for number, char in enumerate(recipe.constants):
            self._constants[number] = self._splat(self._word(first + number, _SCALARS[char]), char, self._head)
        total = self._word(first + len(recipe.constants), "ptr") if recipe.total else ""
        last = self._new(f"sub i64 {count}, {self._lanes}", self._head)
        places = []
        for pointer, stride in pointers:
            offset = self._new(f"mul i64 %r, {stride}", self._row)
            places.append(self._new(f"getelementptr i8, ptr {pointer}, i64 {offset}", self._row))
        for (char, along), place in zip(recipe.inputs, places, strict=False):
            if along:
                self._inputs.append(self._load(place, char))
            else:
                value = self._new(f"load {_SCALARS[char]}, ptr {place}, align {TYPES[char]}", self._row)
                self._inputs.append(self._splat(value, char, self._row))
        for step in recipe.steps:
            self._steps.append(self._step(step))
        for number, place in zip(recipe.outputs, places[len(recipe.inputs) :], strict=True):
            self._store(self._steps[number], recipe.steps[number].char, place)
        return self._assemble(rows, count, last, total)

    def _assemble(self, rows: str, count: str, last: str, total: str) -> str:
        char = self._recipe.steps[-1].char
        kind, scalar = self._vector(char), _SCALARS[char]
        mask = f"<{self._lanes} x {self._mask}>"
        sums: dict[str, list[str]] = {name: [] for name in ("row", "loop", "body", "end", "done")}
        if total:
            zero = "zeroinitializer"
            sums["row"] = [f"%all = phi {kind} [{zero}, %start], [%more, %ended]"]
            sums["loop"] = [f"%sum = phi {kind} [{zero}, %row], [%added, %loop]",
                            "%done = phi i64 [0, %row], [%after, %loop]"]  # fmt: skip
            numbers = ", ".join(f"i64 {i}" for i in range(self._lanes))
            at = self._splat_word("%i")
            until = self._splat_word("%done")
            lane = self._new(f"add <{self._lanes} x i64> {at}, <{numbers}>")
            fresh = self._new(f"icmp sge <{self._lanes} x i64> {lane}, {until}")
            value = self._new(f"select <{self._lanes} x i1> {fresh}, {kind} {self._steps[-1]}, {kind} zeroinitializer")
            sums["body"] = [f"%added = fadd {kind} %sum, {value}"]
            sums["end"] = [f"%more = fadd {kind} %all, %added"]
            sums["done"] = [f"store {kind} %more, ptr {total}, align {TYPES[char]}"]
        lines = [
            *sorted(self._declared),
            f"define i64 @{ENTRY}(ptr %words) {{", "start:", *self._head, "br label %row",
            "row:", "%r = phi i64 [0, %start], [%r1, %ended]",
            f"%bad0 = phi {mask} [zeroinitializer, %start], [{self._bad}, %ended]", *sums["row"], *self._row,
            "br label %loop",
            "loop:", "%i = phi i64 [0, %row], [%next, %loop]", f"%bad = phi {mask} [%bad0, %row], [{self._bad}, %loop]",
            *sums["loop"], *self._body, *sums["body"],
            f"%after = add i64 %i, {self._lanes}", f"%over = icmp sgt i64 %after, {last}",
            f"%next = select i1 %over, i64 {last}, i64 %after", f"%again = icmp slt i64 %after, {count}",
            "br i1 %again, label %loop, label %ended",
            "ended:", "%r1 = add i64 %r, 1", *sums["end"], f"%rows = icmp slt i64 %r1, {rows}",
            "br i1 %rows, label %row, label %finished",
            "finished:", *sums["done"],
            f"%faults = icmp ne {mask} {self._bad}, zeroinitializer",
            f"%bits = bitcast <{self._lanes} x i1> %faults to i{self._lanes}",
            f"%any = icmp ne i{self._lanes} %bits, 0", "%found = zext i1 %any to i64", "ret i64 %found", "}",
        ]  # fmt: skip
        if scalar == "i8" and total:
            raise ValueError("a total of booleans has no vector")
        return "\n".join(lines) + "\n"

    def _splat_word(self, value: str) -> str:
        return self._splat(value, "l", self._body)

    def _load(self, place: str, char: str) -> str:
        at = self._new(f"getelementptr {_SCALARS[char]}, ptr {place}, i64 %i")
        value = self._new(f"load <{self._lanes} x {_SCALARS[char]}>, ptr {at}, align {TYPES[char]}")
        return self._truth(value, self._body) if char == "?" else value

    def _store(self, value: str, char: str, place: str) -> None:
        at = self._new(f"getelementptr {_SCALARS[char]}, ptr {place}, i64 %i")
        if char == "?":
            value = self._new(f"zext {self._vector('?')} {value} to <{self._lanes} x i8>")
        self._body.append(f"store <{self._lanes} x {_SCALARS[char]}> {value}, ptr {at}, align {TYPES[char]}")

    def _argument(self, argument: Argument, wanted: str) -> str:
        if argument.source == "constant":
            return self._constants[argument.number]
        value = (self._inputs if argument.source == "input" else self._steps)[argument.number]
        return self._cast(value, argument.char, wanted)

    def _cast(self, value: str, char: str, wanted: str) -> str:
        if char == wanted:
            return value
        source, target = self._vector(char), self._vector(wanted)
        if wanted == "?":
            test = "fcmp une" if char in "df" else "icmp ne"
            return self._new(f"{test} {source} {value}, zeroinitializer")
        if char in "df":
            return self._new(f"{'fpext' if wanted == 'd' else 'fptrunc'} {source} {value} to {target}")
        if wanted in "df":
            return self._new(f"{'uitofp' if char == '?' else 'sitofp'} {source} {value} to {target}")
        return self._new(
            f"{'zext' if char == '?' else 'sext' if wanted == 'l' else 'trunc'} {source} {value} to {target}"
        )

    def _step(self, step: Step) -> str:
        values = [self._argument(each, char) for each, char in zip(step.arguments, step.loop, strict=True)]
        result = self._operation(step, values)
        if self._recipe.precise and step.char in "df" and not step.silent:
            self._tell_new(result, step, values)
        elif step.checked and not self._recipe.precise:
            self._tell(self._not_finite(result, step.char))
        return result

    def _not_finite(self, value: str, char: str) -> str:
        size = self._call("fabs", char, value)
        return self._new(f"fcmp ueq {self._vector(char)} {size}, {self._infinity(char)}")

    def _infinity(self, char: str) -> str:
        return "<" + ", ".join([f"{_SCALARS[char]} {_INFINITY}"] * self._lanes) + ">"

    def _tell(self, bad: str) -> None:
        mask = f"<{self._lanes} x {self._mask}>"
        wide = self._new(f"sext <{self._lanes} x i1> {bad} to {mask}")
        self._bad = self._new(f"or {mask} {self._bad}, {wide}")

    def _tell_new(self, result: str, step: Step, values: list[str]) -> None:
        """A NaN of no NaN, or an infinity of finite values."""
        if step.name in ("maximum", "minimum", "where", "floor", "ceil", "trunc", "rint", "erf", "erfc"):
            return
        kind, bits = self._vector(step.char), f"<{self._lanes} x i1>"
        missing = self._new(f"fcmp uno {kind} {result}, {result}")
        infinite = self._not_finite(result, step.char)
        for value, char in zip(values, step.loop, strict=True):
            if char in "df":
                known = self._new(f"fcmp ord {self._vector(char)} {value}, {value}")
                missing = self._new(f"and {bits} {missing}, {known}")
                given = self._not_finite(value, char)
                finite = self._new(f"xor {bits} {given}, {self._ones()}")
                infinite = self._new(f"and {bits} {infinite}, {finite}")
        self._tell(self._new(f"or {bits} {missing}, {infinite}"))

    def _ones(self) -> str:
        return "<" + ", ".join(["i1 true"] * self._lanes) + ">"

    def _call(self, intrinsic: str, char: str, value: str) -> str:
        kind = self._vector(char)
        name = f"@llvm.{intrinsic}.v{self._lanes}f{TYPES[char] * 8}"
        self._declared.add(f"declare {kind} {name}({kind})")
        return self._new(f"call {kind} {name}({kind} {value})")

    def _operation(self, step: Step, values: list[str]) -> str:
        name, char = step.name, step.loop[-1]
        kind = self._vector(char)
        first, second = values[0], values[-1]
        floating = char in "df"
        if name in NAMES:
            callee = symbol(name, char, self._lanes)
            self._declared.add(f"declare {kind} @{callee}({', '.join([kind] * len(values))})")
            return self._new(f"call {kind} @{callee}({', '.join(f'{kind} {each}' for each in values)})")
        if name in _FLOAT_TESTS:
            test = f"fcmp {_FLOAT_TESTS[name]}" if floating else f"icmp {_tests_of(char)[name]}"
            return self._new(f"{test} {kind} {first}, {second}")
        if name in ("isnan", "isfinite", "isinf"):
            return self._kind_of_number(name, char, first)
        if name in _BITS or name in ("logical_not", "invert"):
            return self._logic(name, step, values)
        if name == "where":
            return self._new(f"select <{self._lanes} x i1> {first}, {kind} {values[1]}, {kind} {second}")
        if name in ("maximum", "minimum"):
            return self._extreme(name, char, first, second)
        if name == "positive":
            return first
        if name == "negative":
            return self._new(f"fneg {kind} {first}" if floating else f"sub {kind} zeroinitializer, {first}")
        if name == "square":
            return self._new(f"{'fmul' if floating else 'mul'} {kind} {first}, {first}")
        if name == "reciprocal":
            one = "<" + ", ".join([f"{_SCALARS[char]} 1.0"] * self._lanes) + ">"
            return self._new(f"fdiv {kind} {one}, {first}")
        if name in _INTRINSICS:
            return self._call(_INTRINSICS[name], char, first)
        operation = (_FLOAT_OPERATIONS if floating else _INTEGER_OPERATIONS)[name]
        return self._new(f"{operation} {kind} {first}, {second}")

    def _kind_of_number(self, name: str, char: str, value: str) -> str:
        if char not in "df":
            return self._ones() if name == "isfinite" else "zeroinitializer"
        kind = self._vector(char)
        if name == "isnan":
            return self._new(f"fcmp uno {kind} {value}, {value}")
        test = "one" if name == "isfinite" else "oeq"
        return self._new(f"fcmp {test} {kind} {self._call('fabs', char, value)}, {self._infinity(char)}")

    def _logic(self, name: str, step: Step, values: list[str]) -> str:
        bits = f"<{self._lanes} x i1>"
        truths = [self._cast(value, char, "?") for value, char in zip(values, step.loop, strict=True)]
        if name in ("logical_not", "invert"):
            return self._new(f"xor {bits} {truths[0]}, {self._ones()}")
        return self._new(f"{_BITS[name]} {bits} {truths[0]}, {truths[1]}")

    def _extreme(self, name: str, char: str, first: str, second: str) -> str:
        kind, bits = self._vector(char), f"<{self._lanes} x i1>"
        if char not in "df":
            test = self._new(f"icmp {'sgt' if name == 'maximum' else 'slt'} {kind} {first}, {second}")
            return self._new(f"select {bits} {test}, {kind} {first}, {kind} {second}")
        ahead = self._new(f"fcmp {'uge' if name == 'maximum' else 'ule'} {kind} {first}, {second}")
        known = self._new(f"fcmp ord {kind} {second}, {second}")
        missing = self._new(f"fcmp uno {kind} {first}, {first}")
        ahead = self._new(f"and {bits} {ahead}, {known}")
        ahead = self._new(f"or {bits} {ahead}, {missing}")
        return self._new(f"select {bits} {ahead}, {kind} {first}, {kind} {second}")


def _tests_of(char: str) -> dict[str, str]:
    return {key: value.replace("s", "u", 1) for key, value in _INTEGER_TESTS.items()} if char == "?" else _INTEGER_TESTS
