//! Answers a query over a table from the buckets of one of its tiers, where they give the same answer as the rows and are far
//! fewer.
//!
//! A bucket stands in for its rows if the query asks for all of them, none is behind the horizon, and what is stored of it is
//! what the snapshot sees. The rows themselves answer for the rest of the time. Sums of floats always come from the rows: those
//! of buckets are rounded.

use std::sync::Arc;

use super::filter::{pick_all, undecided};
use super::groups::{FirstRow, Groups};
use super::query::{Aggregate, Answer, Condition, Group, Query, Value};
use super::ranges::Ranges;
use super::runs::{Cutter, cut};
use super::states::Statistics;
use super::strip::Rows;
use super::threads;
use super::tier::{SpanRow, for_each_span};
use super::view::{View, times_of};
use crate::engine::Engine;
use crate::error::Result;
use crate::group::RowGroup;
use crate::memtable::Key;
use crate::row::RowLayout;
use crate::schema::{Number, Schema};
use crate::segment::Held;
use crate::table::Table;
use crate::tier::bucket::{Buckets, Interval};
use crate::tier::{Statistic, Tier, position_of_key, position_of_statistic, stale_buckets, stored_buckets};

/// Spans of time that are answered one by one at most, from buckets or from rows.
const SPANS: usize = 16;

/// Buckets side by side at most of which each is looked at, whether it lies in one group.
const MOST_BUCKETS: usize = 1 << 16;

/// What a query asks for, by the columns of a tier.
struct Terms {
    groups: Vec<usize>,
    conditions: Vec<Condition>,
    aggregates: Vec<Term>,
    /// The columns of the table's key in which a first row has its values.
    firsts: Vec<(usize, usize)>,
}

/// Columns of a tier that an aggregate is computed from.
enum Term {
    /// Of [`Aggregate::Count`] and [`Aggregate::CountOf`]: a column of counts.
    Counts(usize),
    /// Of [`Aggregate::Sum`]: of sums and of counts, and the bias of the column that was summed.
    Sums { sums: usize, counts: usize, bias: u64 },
    /// Of [`Aggregate::Min`] and [`Aggregate::Max`]: a column of extremes.
    Extremes(usize),
    /// Of [`Aggregate::First`]: in the first row.
    First,
}

/// The answer, unless it has to come from the rows alone.
pub fn answer(
    engine: &Engine,
    table: &Arc<Table>,
    view: &View,
    query: &Query,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Answer>> {
    let schema = view.layout.schema();
    // One group is answered from zone maps.
    if query.groups.is_empty() || table.tiers().is_empty() || table.schema().version != schema.version {
        return Ok(None);
    }
    let Some(asked) = times_asked(query, &view.layout) else { return Ok(None) };
    let rows = table.stats().rows;
    let tiers = table.tiers();
    for place in (0..tiers.len()).rev() {
        let tier = &tiers[place];
        let fits = tier.table.stats().rows.saturating_mul(engine.tuning.rows_of_bucket) <= rows;
        let Some(buckets) = Buckets::of(schema, tier.def.bucket).filter(|_| fits) else { continue };
        let Some(terms) = Terms::of(query, schema, tier) else { continue };
        let fresh = fresh_spans(table, view, place, &buckets, asked);
        let time = schema.time.map(|time| usize::from(time.column));
        let mut of_time = query.groups.iter().filter(|group| Some(group.column()) == time);
        if fresh.is_empty() || fresh.len() > SPANS || !of_time.all(|group| nest(tier, &buckets, group, &fresh)) {
            continue;
        }
        engine.note_tier_answer();
        let rest: Vec<Query> =
            gaps(times_of(query, &view.layout), &fresh).map(|span| within(query, schema, span)).collect();
        let mut groups = Groups::new(query, schema);
        add_buckets(tier, view, query, &terms, &fresh, &mut groups, is_cancelled)?;
        for query in &rest {
            groups.join(threads::groups(view, query, engine.tuning.part_rows, is_cancelled)?)?;
        }
        return groups.finish().map(Some);
    }
    Ok(None)
}

/// The times of which a query asks for all rows of the series that it asks for; `None` if that cannot be said.
fn times_asked(query: &Query, layout: &RowLayout) -> Option<Interval> {
    let schema = layout.schema();
    let time = usize::from(schema.time?.column);
    let series = schema.series_columns();
    let is_of_time =
        |condition: &Condition| matches!(condition, Condition::Range { column, negated: false, .. } if *column == time);
    query.conditions.iter().all(|c| is_of_time(c) || is_of_series(schema, c)).then_some(())?;
    let (first, last) = times_of(query, layout);
    let has_time = |key: &[u8]| layout.parts_len(key, series).is_some_and(|len| len < key.len());
    let (low, high) =
        (query.low.as_deref().filter(|key| has_time(key)), query.high.as_deref().filter(|key| has_time(key)));
    let asked = match (low, high) {
        (None, None) => Interval { first, last },
        // Bounds in one series. The first one may be among the rows of one time; the last one's time is not asked for, or not all of it.
        (Some(low), Some(high))
            if layout.series_of(low).is_some() && layout.series_of(low) == layout.series_of(high) =>
        {
            let is_whole = layout.parts_len(low, series + 1) == Some(low.len());
            Interval {
                first: first.checked_add(u64::from(!is_whole))?,
                last: last.min(layout.time_of_key(high)?.checked_sub(1)?),
            }
        }
        _ => return None,
    };
    (asked.first <= asked.last).then_some(asked)
}

/// Whether a column is one of those that name the series.
fn is_series(schema: &Schema, column: usize) -> bool {
    schema.key[..schema.series_columns()].iter().any(|&k| usize::from(k) == column)
}

/// Whether a condition asks for some series and not others.
fn is_of_series(schema: &Schema, condition: &Condition) -> bool {
    condition.columns().iter().all(|&column| is_series(schema, column))
}

impl Terms {
    /// `None` if the tier cannot say what is asked for.
    fn of(query: &Query, schema: &Schema, tier: &Tier) -> Option<Terms> {
        let of_tier = &tier.table.schema();
        let series = |c: usize| is_series(schema, c).then(|| position_of_key(of_tier, schema.columns[c].id)).flatten();
        let time = usize::from(schema.time?.column);
        let group = |group: &Group| match *group {
            Group::Bucket { column, .. } if column == time => Some(usize::from(of_tier.time?.column)),
            _ => series(group.column()),
        };
        let statistic = |c: usize, statistic| match schema.columns[c].source {
            None => position_of_statistic(of_tier, schema.columns[c].id, statistic),
            // It counts points, not readings.
            Some(_) => None,
        };
        let counts = |c: usize| statistic(c, Statistic::Count);
        let mut firsts = Vec::new();
        let mut term = |aggregate: &Aggregate| {
            Some(match *aggregate {
                Aggregate::Count => {
                    let never_null = |c: &usize| !schema.columns[*c].nullable && schema.columns[*c].initial.is_none();
                    Term::Counts((0..schema.columns.len()).filter(never_null).find_map(counts)?)
                }
                Aggregate::CountOf(c) => Term::Counts(counts(c)?),
                Aggregate::Sum(c) => {
                    let bias = match schema.columns[c].number? {
                        Number::Integer { bias } => bias,
                        Number::Decimal { .. } => 0,
                    };
                    Term::Sums { sums: statistic(c, Statistic::Sum)?, counts: counts(c)?, bias }
                }
                Aggregate::Min(c) => Term::Extremes(statistic(c, Statistic::Min)?),
                Aggregate::Max(c) => Term::Extremes(statistic(c, Statistic::Max)?),
                Aggregate::First(c) => {
                    firsts.push((c, series(c)?));
                    Term::First
                }
            })
        };
        let aggregates = query.aggregates.iter().map(&mut term).collect::<Option<_>>()?;
        let conditions = query.conditions.iter().filter(|condition| is_of_series(schema, condition));
        Some(Terms {
            groups: query.groups.iter().map(group).collect::<Option<_>>()?,
            conditions: conditions.map(|condition| condition.moved(&series)).collect::<Option<_>>()?,
            aggregates,
            firsts,
        })
    }
}

/// Whether each bucket of some spans, as far as there may be one, lies in one group.
fn nest(tier: &Tier, buckets: &Buckets, group: &Group, spans: &[Interval]) -> bool {
    let version = tier.table.version();
    let metas = || version.segments.values().map(|s| s.meta());
    let Some((first, last)) = metas().map(|m| m.min_time).min().zip(metas().map(|m| m.max_time).max()) else {
        return true;
    };
    let mut left = MOST_BUCKETS;
    spans.iter().all(|span| {
        let mut at = span.first.max(first);
        while at <= span.last.min(last) {
            let bucket = buckets.interval(at);
            left = left.saturating_sub(1);
            if left == 0 || group.bounds(bucket.first).1 < bucket.last {
                return false;
            }
            let Some(next) = bucket.last.checked_add(1) else { break };
            at = next;
        }
        true
    })
}

/// Spans of whole buckets among the times asked for in which they stand in for their rows.
fn fresh_spans(table: &Arc<Table>, view: &View, place: usize, buckets: &Buckets, asked: Interval) -> Vec<Interval> {
    let stale = stale_buckets(table, view, place, buckets);
    let tier = &table.tiers()[place].table;
    if view.horizon.as_ref().is_some_and(|horizon| horizon.snapshot_of_floors().is_some()) {
        return Vec::new();
    }
    let mut from = asked.first.max(table.gone_until()).max(tier.gone_until());
    if let Some(horizon) = &view.horizon {
        // At its time some rows may be gone.
        from = from.max(horizon.position.time.saturating_add(u64::from(!horizon.position.key.is_empty())));
    }
    if let Some(horizon) = tier.version().gate.at(view.snapshot.seq()) {
        from = from.max(horizon.position.time);
    }
    let at_end = buckets.interval(asked.last);
    let until = if at_end.last == asked.last { asked.last } else { at_end.first.saturating_sub(1) };
    let all = buckets.from(&[Interval { first: 0, last: u64::MAX }], from);
    let all = all.into_iter().map(|span| Interval { last: span.last.min(until), ..span });
    let spans = all.filter(|span| span.first <= span.last && span.first <= asked.last);
    spans.flat_map(|span| gaps((span.first, span.last), &stale).collect::<Vec<_>>()).collect()
}

/// What lies between some ascending spans.
fn gaps((first, last): (u64, u64), spans: &[Interval]) -> impl Iterator<Item = Interval> + '_ {
    let mut from = Some(first);
    let ends = spans.iter().map(|span| (span.first.checked_sub(1), span.last.checked_add(1)));
    ends.chain([(Some(last), None)]).filter_map(move |(end, next)| {
        let gap = from.zip(end).map(|(first, end)| Interval { first, last: end.min(last) });
        from = from.and(next.map(|next| next.max(from.unwrap_or(0))));
        gap.filter(|gap| gap.first <= gap.last)
    })
}

/// A query for a part of the time.
fn within(query: &Query, schema: &Schema, span: Interval) -> Query {
    let column = schema.time.map_or(0, |time| usize::from(time.column));
    let mut query = query.clone();
    query.conditions.push(Condition::Range { column, low: span.first, high: span.last, negated: false });
    query
}

fn add_buckets(
    tier: &Tier,
    view: &View,
    query: &Query,
    terms: &Terms,
    fresh: &[Interval],
    groups: &mut Groups<'_>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<()> {
    let layout = tier.table.layout();
    // Each span is a walk of its own through the keys.
    for (walk, span) in (0..).zip(fresh) {
        let asked = within(&Query { conditions: terms.conditions.clone(), ..query.clone() }, layout.schema(), *span);
        let mut cursor = stored_buckets(tier, view);
        cursor.limit_times((span.first, span.last));
        for_each_span(cursor, &asked, is_cancelled, &mut |group, rows| {
            add_rows(group, rows, (&asked.conditions, terms, query), walk, groups)
        })?;
    }
    Ok(())
}

fn add_rows(
    group: &Arc<RowGroup>,
    within: Ranges,
    (conditions, terms, query): (&[Condition], &Terms, &Query),
    walk: u32,
    groups: &mut Groups<'_>,
) -> Result<()> {
    let Some(open) = undecided(conditions, &**group) else { return Ok(()) };
    let ranges = pick_all(open, &**group, within)?;
    let held = |column: usize| group.column(column).cloned().map(Held::Column);
    let of_groups = terms.groups.iter().map(|&column| held(column)).collect::<Result<Vec<Held>>>()?;
    let cutters = query.groups.iter().zip(&of_groups);
    let cutters: Vec<_> = cutters.map(|(&group, held)| Cutter { group, rows: Rows::of(held, false) }).collect();
    let runs = cut(&cutters, &ranges, groups, walk, |row| FirstBucket { row: SpanRow { group, row }, terms })?;
    let rows_of = |column: usize| Ok(Rows::of_column(group.column(column)?, false));
    for (n, term) in terms.aggregates.iter().enumerate() {
        let states = &mut groups.states()[n];
        match *term {
            Term::Counts(counts) => states.add_statistics(&runs, &Statistics::Counts(rows_of(counts)?)),
            Term::Sums { sums, counts, bias } => {
                let of = &group.layout().schema().columns[sums];
                let (sums, counts) = (rows_of(sums)?, rows_of(counts)?);
                states.add_statistics(&runs, &Statistics::Sums { sums, of, counts, bias });
            }
            Term::Extremes(column) => states.add(&runs, Some(&rows_of(column)?)),
            Term::First => {}
        }
    }
    Ok(())
}

/// A bucket that may be the first of its group. It begins before its rows do, and behind those of the bucket before.
struct FirstBucket<'g> {
    row: SpanRow<'g>,
    terms: &'g Terms,
}

impl FirstRow for FirstBucket<'_> {
    fn key(&self) -> Result<Key> {
        self.row.key()
    }

    fn value(&self, column: usize) -> Result<Value> {
        match self.terms.firsts.iter().find(|(of, _)| *of == column) {
            Some(&(_, place)) => self.row.value(place),
            None => Ok(Value::Null),
        }
    }
}
