"""Random aggregate queries for random_aggregates.py: what people and Grafana write, and forms around it."""

from random_aggregate_tables import BASE

ORDERED = ("integer", "decimal", "double", "date", "timestamp")


class Query:
    """A query with {t} for its table; `setup` comes before it, `ordered` says that its rows have one order."""

    def __init__(self, form, sql, ordered, setup=()):
        self.form = form
        self.sql = sql
        self.ordered = ordered
        self.setup = setup

    def text(self, table):
        return self.sql.replace("{t}", table)

    def hinted(self, hint):
        """The same with a hint how to group."""
        hinted = [statement.replace("SELECT ", f"SELECT {hint} ") for statement in (*self.setup, self.sql)]
        return Query(self.form, hinted[-1], self.ordered, hinted[:-1])

    def before(self, table):
        return [statement.replace("{t}", table) for statement in self.setup]


class Queries:
    """Makes queries of one table."""

    def __init__(self, rng, table, in_transaction):
        self.rng = rng
        self.in_transaction = in_transaction  # CREATE VIEW would end it
        self.table = table
        self.columns = table.columns
        self.time = table.time

    def pick(self, *kinds):
        return self.rng.choice([c for c in self.columns if not kinds or c.kind in kinds] or self.columns)

    # -- parts ----------------------------------------------------------------------------------------------

    def aggregate(self):
        rng = self.rng
        draw = rng.random()
        if draw < 0.2:
            return "COUNT(*)"
        function = rng.choice(("COUNT", "SUM", "AVG", "MIN", "MAX", "SUM", "AVG"))
        if draw < 0.95:
            column = self.pick("integer", "decimal", "double") if function in ("SUM", "AVG") else self.pick()
            if rng.random() < 0.05:
                column = self.pick()
            return f"{function}({column.name})"
        return rng.choice(("COUNT(1)", "COUNT(NULL)", "SUM(1)", "COUNT(DISTINCT ts)", "MAX(ts) - MIN(ts)", "STDDEV(ts)"))

    def value(self):
        """An expression over aggregates."""
        rng = self.rng
        one = self.aggregate()
        if rng.random() < 0.75:
            return one
        other = self.aggregate()
        return rng.choice(
            (
                f"{one} + 1",
                f"ROUND({one}, 2)",
                f"{one} / {other}",
                f"{one} * 3",
                f"IF({one} > 5, 'many', 'few')",
                f"COALESCE({one}, 0)",
                f"CONCAT({one}, '!')",
                f"CAST({one} AS DOUBLE)",
                f"{one} IS NULL",
                f"CASE WHEN {one} > {other} THEN {one} ELSE {other} END",
                f"-({one})",
                f"{one} BETWEEN 1 AND 100",
            )
        )

    def bucket(self):
        """A group of times, or of any integers."""
        rng = self.rng
        column = self.time if rng.random() < 0.8 else self.pick("integer")
        n = rng.choice((1, 2, 7, 60, 300, 300, 3600, 86400, 100000))
        name = column.name
        if column.kind == "integer":
            return rng.choice(
                (
                    f"{name} DIV {n}",
                    f"{name} DIV {n} * {n}",
                    f"{name} - {name} % {n}",
                    f"{name} - MOD({name}, {n})",
                    f"FLOOR({name} / {n})",
                    f"FLOOR({name} / {n}) * {n}",
                    f"ROUND({name} / {n})",
                    f"({name} DIV 60) DIV 60",
                    f"{name} DIV 60 * 60 DIV 3600",
                    f"({name} + 3600) DIV {n}",
                    f"CAST(FLOOR({name} / {n}) AS SIGNED) * {n}",
                    f"time_bucket({n}, {name})",
                    f"time_bucket('5m', {name})",
                    f"time_bucket('1h', {name}, '7m')",
                    f"FROM_UNIXTIME({name} DIV {n} * {n})",
                    f"DATE(FROM_UNIXTIME({name}))",
                    f"HOUR(FROM_UNIXTIME({name} / 1000))",
                    f"time_bucket('1mo', {name})",
                    f"CAST(CAST({name} / ({n}) AS SIGNED) * {n} AS SIGNED)",
                    f"{name} + 5",
                    f"{name} % {n}",
                )
            )
        return rng.choice(
            (
                f"UNIX_TIMESTAMP({name}) DIV {n}",
                f"UNIX_TIMESTAMP({name}) DIV {n} * {n}",
                f"FLOOR(UNIX_TIMESTAMP({name}) / {n}) * {n}",
                f"UNIX_TIMESTAMP({name}) - UNIX_TIMESTAMP({name}) % {n}",
                f"time_bucket('5m', {name})",
                f"time_bucket('1 DAY', {name})",
                f"time_bucket('1mo', {name})",
                f"FROM_UNIXTIME(UNIX_TIMESTAMP({name}) DIV {n} * {n})",
                f"DATE({name})",
                f"HOUR({name})",
                f"DATE_FORMAT({name}, '{rng.choice(('%Y-%m-%d %H:00', '%H:%i', '%W %p', '%Y%j %T', '%s.%f'))}')",
                f"CAST(CAST(UNIX_TIMESTAMP({name}) / ({n}) AS SIGNED) * {n} AS SIGNED)",
                f"CONCAT(YEAR({name}), '-', MONTH({name}))",
                f"time_bucket('3h', {name}, '1h')",
                f"WEEKDAY({name})",
            )
        )

    def group(self):
        rng = self.rng
        draw = rng.random()
        if draw < 0.35:
            return self.bucket()
        if draw < 0.4:
            name = (self.table.series or self.pick()).name
            return rng.choice((f"UPPER({name})", f"{name} IS NULL", f"LEFT({name}, 1)", f"{name} % 3", f"{name} > 5"))
        if draw < 0.65 and self.table.series:
            return self.table.series.name
        return self.pick().name

    def time_value(self):
        """A constant to compare the time column with."""
        rng = self.rng
        second = BASE + rng.choice((0, 1, 100, 3000, 30000, 300000, -100)) + rng.randint(-5, 5)
        if self.time.kind == "integer":
            return rng.choice((str(second), f"UNIX_TIMESTAMP(FROM_UNIXTIME({second}))", f"{second}.5", f"'{second}'"))
        return rng.choice(
            (
                f"FROM_UNIXTIME({second})",
                f"'2020-09-13 {12 + rng.randint(0, 3)}:{rng.randint(10, 59)}:00'",
                "'2020-09-14'",
                "TIMESTAMP'2020-09-13 14:00:00'",
                "NOW() - INTERVAL 1 DAY",
            )
        )

    def constant(self, column):
        rng = self.rng
        if column is self.time and rng.random() < 0.8:
            return self.time_value()
        if rng.random() < 0.1:
            return rng.choice(("0", "1", "1.5", "-2", "2e0", "NULL", "''", "'a'", "1e30", "99999999999999999999"))
        return column.draw(rng)

    def condition(self):
        rng = self.rng
        column = self.pick() if rng.random() < 0.6 else rng.choice([c for c in (self.table.series, self.time) if c])
        name, draw = column.name, rng.random()
        operator = rng.choice(("=", "<", "<=", ">", ">=", "<>", "<=>"))
        if draw < 0.45:
            return f"{name} {operator} {self.constant(column)}"
        if draw < 0.5:
            return f"{self.constant(column)} {operator} {name}"
        if draw < 0.62:
            return f"{name} {rng.choice(('', '', 'NOT '))}BETWEEN {self.constant(column)} AND {self.constant(column)}"
        if draw < 0.74:
            values = ", ".join(self.constant(column) for _ in range(rng.randint(1, 5)))
            return f"{name} {rng.choice(('IN', 'IN', 'NOT IN'))} ({values})"
        if draw < 0.82:
            return f"{name} IS {rng.choice(('NULL', 'NOT NULL'))}"
        if draw < 0.92:
            bucket = self.bucket()
            return f"{bucket} {operator} {rng.choice((str(BASE // 3600), str(BASE), '0', '-3', '5', '2.5', repr('2020-09-13')))}"
        if draw < 0.94:
            return f"{name} {rng.choice(('LIKE', 'NOT LIKE'))} {rng.choice((repr('a%'), repr('%0%'), repr('_')))}"
        if draw < 0.97:
            return f"({name} = {self.constant(column)} OR {name} = {self.constant(column)})"
        return rng.choice(("1 = 1", "1 = 0", f"{name}", f"NOT ({name} > 0)", "RAND() < 2", f"{name} LIKE 'a%'"))

    def conditions(self):
        """A condition, or some joined by OR and AND."""
        rng = self.rng
        if rng.random() < 0.75:
            return self.condition()
        parts = [" AND ".join(self.condition() for _ in range(rng.choice((1, 1, 2)))) for _ in range(rng.randint(2, 3))]
        return f"{rng.choice(('', '', 'NOT '))}(" + " OR ".join(f"({part})" for part in parts) + ")"

    def where(self):
        count = self.rng.choice((0, 0, 1, 1, 2, 3))
        return " WHERE " + " AND ".join(self.conditions() for _ in range(count)) if count else ""

    # -- whole queries ------------------------------------------------------------------------------------------

    def select(self, aliased=False):
        """A SELECT and whether its rows have one order."""
        rng = self.rng
        groups = [self.group() for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        groups = list(dict.fromkeys(groups))
        values = [self.value() for _ in range(rng.randint(1, 4))]
        shown = [group for group in groups if rng.random() < 0.85]
        items = [f"{group} AS g{n}" for n, group in enumerate(shown)]
        if groups and rng.random() < 0.15:
            items.append(f"CONCAT({groups[0]}, '-') AS made")
        if rng.random() < 0.05:
            items.append("'text' AS literal")
        items += [f"{value} AS v{n}" for n, value in enumerate(values)]
        rng.shuffle(items)
        sql = f"SELECT {', '.join(items)} FROM {{t}}{self.where()}"
        if not groups:
            return sql + (f" HAVING {self.having(values)}" if rng.random() < 0.1 else ""), True
        by = [f"g{shown.index(group)}" if group in shown and rng.random() < 0.5 else group for group in groups]
        sql += " GROUP BY " + ", ".join(by)
        if rng.random() < 0.2:
            sql += f" HAVING {self.having(values)}"
        ordered = rng.random() < 0.6
        if ordered:
            keys = [f"{group}{rng.choice(('', '', ' DESC'))}" for group in groups]
            if rng.random() < 0.4:
                keys.insert(0, f"{rng.choice(values)}{rng.choice(('', ' DESC'))}")
            sql += " ORDER BY " + ", ".join(keys)
            if rng.random() < 0.5:
                sql += f" LIMIT {rng.choice(('1', '3', '10', '2 OFFSET 1', '0'))}"
        # Floats that differ in the last digit, and texts that are shown in another way, may come in another order.
        return sql, ordered and not any(c in " ".join(groups + values) for c in self.unsure())

    def of_tier(self):
        """A query that a tier may answer, for part of the time at least."""
        rng = self.rng
        scale = 1000 if self.time.is_ms else 1
        if self.time.kind == "integer":
            n = rng.choice((3600, 86400, 604800)) * scale
            buckets = (f"ts DIV {n}", f"ts DIV {n} * {n}", f"ts - ts % {n}", f"FLOOR(ts / {n}) * {n}", f"time_bucket({n}, ts)")
        else:
            buckets = ("DATE(ts)", "YEAR(ts)", "DATE_FORMAT(ts, '%Y-%m')", "UNIX_TIMESTAMP(ts) DIV 86400", "time_bucket('1d', ts)")
        series = [self.table.series.name] if self.table.series else []
        groups = rng.choice((series, [rng.choice(buckets)], [*series, rng.choice(buckets)])) or [buckets[0]]
        numbers = [column for column in self.columns if column.name[0] == "c" and column.kind in ("integer", "decimal", "double")]
        values = []
        for _ in range(rng.randint(1, 4)):
            column = rng.choice(numbers)
            functions = ("COUNT", "MIN", "MAX") + (("SUM", "AVG") if column.kind != "double" else ())
            values.append(f"{rng.choice(functions)}({column.name})" if rng.random() < 0.85 else "COUNT(*)")
        where = rng.choice(("", f" WHERE ts >= {self.time.draw(rng)}", f" WHERE ts < {self.time.draw(rng)}"))
        if series and rng.random() < 0.3:
            where += f"{' AND' if where else ' WHERE'} {series[0]} = {self.table.series.draw(rng)}"
        return Query("of a tier", f"SELECT {', '.join(groups + values)} FROM {{t}}{where} GROUP BY {', '.join(groups)}", False)

    def unsure(self):
        return [c.name for c in self.columns if c.kind in ("double", "text")]

    def having(self, values):
        rng = self.rng
        return rng.choice((f"{rng.choice(values)} > {rng.choice((0, 1, 10, 100))}", "COUNT(*) > 1", "MIN(ts) IS NOT NULL"))

    def query(self):
        rng = self.rng
        sql, ordered = self.select()
        form = rng.choice(("plain",) * 8 + ("prepared", "derived", "view", "union", "scalar", "inserted", "correlated"))
        if form == "prepared":
            quoted = sql.replace("\\", "\\\\").replace("'", "''")
            return Query(form, "EXECUTE p", ordered, (f"PREPARE p FROM '{quoted}'",))
        if form == "derived":
            return Query(form, f"SELECT * FROM ({sql}) AS d", False)
        if form == "view" and not self.in_transaction:
            return Query(form, "SELECT * FROM v_{t}", False, (f"CREATE OR REPLACE VIEW v_{{t}} AS {sql}",))
        if form == "union":
            return Query(form, f"({sql}) {rng.choice(('UNION ALL', 'UNION'))} ({sql})", False)
        if form == "scalar":
            return Query(form, f"SELECT 1, (SELECT {self.aggregate()} FROM {{t}}{self.where()}) AS x", True)
        if form == "inserted":
            name = f"CREATE OR REPLACE TEMPORARY TABLE x AS {sql}"
            return Query(form, "SELECT * FROM x", False, (name,))
        if form == "correlated":
            series = self.table.series or self.time
            inner = f"SELECT {self.aggregate()} FROM {{t}} AS a WHERE a.{series.name} = b.{series.name}"
            return Query(form, f"SELECT b.ts, ({inner}) AS x FROM {{t}} AS b ORDER BY 1, 2 LIMIT 30", False)
        return Query("plain", sql, ordered)
