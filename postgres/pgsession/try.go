package pgsession

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

const (
	tryTimeout   = 15 * time.Second      // a statement that takes longer is cancelled and tried again
	shortTimeout = 5 * time.Second       // for Close, and for each statement of a background goroutine
	firstPause   = 20 * time.Millisecond // between attempts; doubles up to maxPause
	maxPause     = time.Second
)

// try calls fn, and calls it again while mayRetry accepts its error, for at most Options.Wait. again is false for the
// first call; later, it is unknown whether an earlier call had an effect.
func (s *Store) try(ctx context.Context, fn func(ctx context.Context, again bool) error) error {
	begin := time.Now()
	for pause, again := firstPause, false; ; pause, again = min(2*pause, maxPause), true {
		tryCtx, cancel := context.WithTimeout(ctx, tryTimeout)
		err := fn(tryCtx, again)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case errors.Is(err, puddle.ErrClosedPool):
			return errClosed
		case !mayRetry(err):
			return err
		case time.Since(begin)+pause > s.opts.Wait:
			return fmt.Errorf("the database could not be reached for %v; check that it runs, or raise Options.Wait: %w", s.opts.Wait, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// mayRetry reports whether err means that the database could not be reached, or that the same statement may succeed
// later.
func mayRetry(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "08") || // connection_exception
			hasCode(err, "57P01", "57P02", "57P03", "57P05", // the server is being shut down or started
				"53300",          // too_many_connections
				"25006",          // read_only_sql_transaction: the server has become a standby
				"40001", "40P01") // serialization_failure, deadlock_detected
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed)
}

// batch runs statements in one round trip and one transaction. scan, if not nil, is called with the row of the last
// statement; the error is [pgx.ErrNoRows] if the statement returns no row.
func (s *Store) batch(ctx context.Context, b *pgx.Batch, scan func(pgx.Row) error) error {
	results := s.pool.SendBatch(ctx, b)
	var err error
	if scan != nil {
		for n := 1; n < b.Len() && err == nil; n++ {
			_, err = results.Exec()
		}
		if err == nil {
			err = scan(results.QueryRow())
		}
	}
	// Close reads the other results, and reports whether the transaction was committed. That matters also if the last
	// statement returned no row.
	if closeErr := results.Close(); closeErr != nil && (err == nil || errors.Is(err, pgx.ErrNoRows)) {
		return closeErr
	}
	return err
}
