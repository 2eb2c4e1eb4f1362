<?php
/*
  The table as people wrote it in 2007 to 2009, their trigger and key table dropped: a client of that time's kind fills it
  by single REPLACE INTO statements and by batches of 500 rows a call. After each batch and every so many single rows the
  table must hold exactly what a list in this program holds, which is the newest 25920 rows.

  php classic.php SOCKET: the last line is "N passed, N failed".
*/
declare(strict_types=1);

const RING = 25920;
const BATCH = 500;
const ATTRIBUTES = 60;
const STEP = 300;

$passed = 0;
$failed = 0;

function check(string $what, bool $holds, string $else = ''): void
{
    global $passed, $failed;
    $holds ? $passed++ : $failed++;
    if (!$holds) {
        echo "FAILED: $what", $else === '' ? '' : " ($else)", "\n";
    }
}

/* What the ring must hold: rows in the order in which they were written, by attribute and time. */
class Model
{
    public array $rows = [];

    public function replace(array $row): void
    {
        $key = "$row[0]/$row[1]";
        unset($this->rows[$key]);
        $this->rows[$key] = $row;
        if (count($this->rows) > RING) {
            unset($this->rows[array_key_first($this->rows)]);
        }
    }
}

function reading(int $number): array
{
    $attribute = $number % ATTRIBUTES;
    $start = 1199145600 + intdiv($number, ATTRIBUTES) * STEP;
    return [$attribute, $start, $start + STEP, 10, $number / 7, $number / 8, $number / 6];
}

function count_rows(PDO $pdo): int
{
    return (int) $pdo->query('SELECT COUNT(*) FROM statistic_rrd')->fetchColumn();
}

/* Every row, in the order of rrd_key, value by value. */
function compare(PDO $pdo, Model $model, string $when): void
{
    $found = $pdo->query('SELECT attribute_key, start_utime, end_utime, n, average, minimum, maximum FROM statistic_rrd '
        . 'ORDER BY rrd_key')->fetchAll(PDO::FETCH_NUM);
    $expected = array_values($model->rows);
    $differing = 0;
    foreach ($expected as $i => $row) {
        $differing += isset($found[$i]) && array_map('floatval', $found[$i]) === array_map('floatval', $row) ? 0 : 1;
    }
    check("$when: as many rows", count($found) === count($expected), count($found) . ' of ' . count($expected));
    check("$when: the same rows", $differing === 0, "$differing differ");
    check("$when: COUNT(*)", count_rows($pdo) === count($expected), (string) count_rows($pdo));
    $by_key = $pdo->query('SELECT COUNT(*), SUM(average) FROM statistic_rrd FORCE INDEX (start_utime) WHERE start_utime >= 0')
        ->fetch(PDO::FETCH_NUM);
    $sum = array_sum(array_column($expected, 4));
    check("$when: by the key of start_utime", (int) $by_key[0] === count($expected) && abs($by_key[1] - $sum) < 1e-9 * $sum + 1e-9);
}

$pdo = new PDO("mysql:unix_socket=$argv[1];charset=utf8mb4", 'root', '', [
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
    PDO::ATTR_STRINGIFY_FETCHES => false,
]);
$pdo->exec('CREATE DATABASE classic');
$pdo->exec('USE classic');
$pdo->exec(<<<'SQL'
    CREATE TABLE statistic_rrd (
      rrd_key       INT UNSIGNED NOT NULL AUTO_INCREMENT,
      attribute_key INT UNSIGNED NOT NULL,
      start_utime   INT UNSIGNED NOT NULL,
      end_utime     INT UNSIGNED NOT NULL,
      n             INT UNSIGNED NOT NULL,
      average       DOUBLE NOT NULL,
      minimum       DOUBLE NOT NULL,
      maximum       DOUBLE NOT NULL,
      PRIMARY KEY (rrd_key),
      UNIQUE KEY (attribute_key, start_utime),
      KEY (start_utime)
    ) ENGINE=RRD ROW_FORMAT=FIXED MAX_ROWS=25920
    SQL);
$model = new Model();
$columns = 'attribute_key, start_utime, end_utime, n, average, minimum, maximum';

// Single statements, as text, until the ring is full and further.
$number = 0;
$exact = true;
for (; $number < RING + 3000; $number++) {
    $row = reading($number);
    $written = $pdo->exec("REPLACE INTO statistic_rrd ($columns) VALUES (" . implode(', ', $row) . ')');
    $exact = $exact && $written === 1;
    $model->replace($row);
    // After each row just before and behind the first lap, else now and then.
    if ($number % 2000 === 0 || abs($number - RING) < 5) {
        $exact = $exact && count_rows($pdo) === count($model->rows);
    }
}
check('single rows: one row each, the count exact all along', $exact);
compare($pdo, $model, 'single rows');
$oldest = reading($number - RING);
$gone = reading($number - RING - 1);
$lookup = $pdo->prepare('SELECT average FROM statistic_rrd WHERE attribute_key = ? AND start_utime = ?');
$lookup->execute([$oldest[0], $oldest[1]]);
check('the oldest row of the ring is found by its unique key', $lookup->fetchColumn() === $oldest[4]);
$lookup->execute([$gone[0], $gone[1]]);
check('the row before it is not', $lookup->fetchColumn() === false);

// The same readings once more with new values: each replaces its row, which then is the newest.
$replace = $pdo->prepare("REPLACE INTO statistic_rrd ($columns) VALUES (?, ?, ?, ?, ?, ?, ?)");
$exact = true;
for ($again = $number - 700; $again < $number; $again++) {
    $row = reading($again);
    $row[4] += 1000;
    $replace->execute($row);
    $exact = $exact && $replace->rowCount() === 2;
    $model->replace($row);
}
check('replaced rows: deleted and written', $exact);
compare($pdo, $model, 'replaced rows');

// One that has left the ring comes back as a new row.
$replace->execute($gone);
check('a row that has left the ring is new', $replace->rowCount() === 1, (string) $replace->rowCount());
$model->replace($gone);
compare($pdo, $model, 'a row again');

// Batches of 500 rows a call, two laps of the ring, some of the rows twice.
$exact = true;
for ($batch = 0; $batch < 2 * RING / BATCH; $batch++) {
    $values = [];
    for ($i = 0; $i < BATCH; $i++) {
        $row = reading($i % 10 === 9 ? $number - 5 : $number++);
        $values[] = '(' . implode(', ', $row) . ')';
        $model->replace($row);
    }
    $pdo->exec("REPLACE INTO statistic_rrd ($columns) VALUES " . implode(', ', $values));
    $exact = $exact && count_rows($pdo) === count($model->rows);
}
check('batches: the count exact after each', $exact);
compare($pdo, $model, 'batches');

// A batch larger than the ring leaves its newest rows.
$values = [];
for ($i = 0; $i < RING + 100; $i++) {
    $row = reading($number++);
    $values[] = '(' . implode(', ', $row) . ')';
    $model->replace($row);
}
$pdo->exec("REPLACE INTO statistic_rrd ($columns) VALUES " . implode(', ', $values));
compare($pdo, $model, 'one batch of more than a lap');

// A transaction that is rolled back moves nothing out of the ring.
$pdo->beginTransaction();
for ($i = 0; $i < 2 * BATCH; $i++) {
    $replace->execute(reading($number + $i));
}
$pdo->rollBack();
compare($pdo, $model, 'rolled back');

echo "$passed passed, $failed failed\n";
exit($failed === 0 && $passed > 0 ? 0 : 1);
