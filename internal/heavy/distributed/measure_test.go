package distributed

import (
	"context"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A result is the last line of the test.
type result struct {
	Runs         int     `json:"runs"`
	Ended        int     `json:"ended"`
	EffectsTwice int     `json:"effects_twice"`
	Repeated     int     `json:"model_calls_repeated"` // although their answer was stored
	LostEvents   int     `json:"lost_events"`          // to watchers, or seen twice
	WebRuns      int     `json:"web_runs"`             // through a web front
	WebWrong     int     `json:"web_wrong"`            // of these, in which a browser missed something or saw it twice
	WebDeltas    int     `json:"web_deltas"`           // pieces of text that browsers have seen
	ClockOff     int     `json:"clock_off_s"`          // by how much a clock was off
	Kills        int     `json:"kills"`
	Takeovers    int     `json:"takeovers"` // of sessions whose worker was killed
	TakeoverP50  float64 `json:"takeover_p50_s"`
	TakeoverP99  float64 `json:"takeover_p99_s"`
	HistoryBytes int     `json:"history_bytes_per_step"`
	DBBytes      int     `json:"db_bytes_per_step"`
	Transactions float64 `json:"db_transactions_per_step"`
}

// answers are the model's answers that are stored, with the number of answers before each.
const answers = `WITH message AS (
	SELECT s.id, e.num, e.seq, e.record, convert_from(e.data, 'UTF8')::jsonb AS data FROM kitbag.session s JOIN kitbag.event e USING (num)
), answer AS (
	SELECT m.id, row_number() OVER (PARTITION BY m.num ORDER BY m.seq) - 1 AS n, r.at
	FROM message m JOIN kitbag.record r ON r.num = m.num AND r.seq = m.record
	WHERE m.data->>'type' = 'message' AND m.data->'message'->>'role' = 'assistant'
) `

func (c *cluster) measure(ctx context.Context) (res result, err error) {
	res.Runs, res.WebRuns, res.WebWrong, res.WebDeltas = c.sent, c.web.runs, c.web.wrong, c.web.deltas
	query := func(to any, sql string) {
		if err == nil {
			err = c.pool.QueryRow(ctx, sql).Scan(to)
		}
	}
	query(&res.Ended, "SELECT count(*) FROM kitbag.session WHERE status = 'ended'")
	query(&res.EffectsTwice, "SELECT count(*) FROM (SELECT FROM effect GROUP BY session, n HAVING count(*) > 1) t")
	query(&res.Repeated, answers+"SELECT count(*) FROM noted c JOIN answer a ON a.id = c.session AND a.n = c.n WHERE c.what = 'asked' AND c.at > a.at")
	query(&res.Kills, "SELECT count(*) FROM noted WHERE what = 'killed'")
	query(&res.ClockOff, "SELECT max(abs(n)) FROM noted WHERE what = 'clock'")
	// The sessions that a worker had when it was killed: it was the last to open them, and they were stored after that.
	const takeovers = ` FROM noted k JOIN LATERAL (
			SELECT DISTINCT ON (session) session, n FROM noted WHERE what = 'opened' AND at < k.at ORDER BY session, at DESC
		) o ON o.n = k.n JOIN LATERAL (
			SELECT min(at) AS at FROM noted WHERE what = 'opened' AND session = o.session AND at > k.at
		) t ON t.at IS NOT NULL WHERE k.what = 'killed'`
	query(&res.Takeovers, "SELECT count(*)"+takeovers)
	query(&res.TakeoverP50, "SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM t.at - k.at)), 0)"+takeovers)
	query(&res.TakeoverP99, "SELECT coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM t.at - k.at)), 0)"+takeovers)
	query(&res.DBBytes, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'kitbag' AND c.relkind = 'r'`)
	res.DBBytes /= c.sent * steps
	res.Transactions = c.transactions
	for i := 0; i < c.sent && err == nil; i++ {
		err = c.check(ctx, sessionID(i), &res)
	}
	res.HistoryBytes /= c.sent * steps
	return res, err
}

// countTransactions records the number of transactions for each step, without those of the test itself. It must be
// called before Postgres is killed, which resets its counters.
func (c *cluster) countTransactions(ctx context.Context) error {
	return c.pool.QueryRow(ctx, `SELECT (xact_commit - (SELECT count(*) FROM noted) - (SELECT count(*) FROM effect))::float8 / $1
		FROM pg_stat_database WHERE datname = current_database()`, float64(c.sent*steps)).Scan(&c.transactions)
}

// check compares what a watcher has seen of a session with what is stored.
func (c *cluster) check(ctx context.Context, id string, res *result) error {
	_, in, err := session.Read(ctx, c.store, id, 0)
	if err != nil {
		return err
	}
	var stored []int64
	for ev, err := range c.store.Watch(ctx, id, 0) {
		if err != nil {
			return err
		}
		if stored = append(stored, ev.Seq); ev.Seq == in.Event {
			break
		}
	}
	seen := c.watched[id]
	for _, seq := range stored {
		if !slices.Contains(seen, seq) {
			res.LostEvents++
		}
	}
	for i, seq := range seen {
		if i > 0 && seq <= seen[i-1] || !slices.Contains(stored, seq) {
			res.LostEvents++
		}
	}
	d, err := c.client.DescribeWorkflowExecution(ctx, "agents/"+id, "")
	if err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	res.HistoryBytes += int(d.GetWorkflowExecutionInfo().GetHistorySizeBytes())
	return nil
}
