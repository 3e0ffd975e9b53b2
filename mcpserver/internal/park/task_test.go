package park

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestExtend checks that a task for which a client has once used an identity that does not expire is not cancelled when
// another identity expires.
func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call, cancel := context.WithCancel(t.Context())
		defer cancel()
		expiring := func(in time.Duration) context.Context {
			ctx, stop := context.WithTimeout(t.Context(), in)
			t.Cleanup(stop)
			return ctx
		}
		first := expiring(time.Minute)
		end, _ := first.Deadline()
		task := &task{until: end, expiry: time.AfterFunc(time.Minute, cancel)}
		task.extend(t.Context())
		task.extend(expiring(time.Hour))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if call.Err() != nil {
			t.Error("the call of the task was cancelled")
		}
	})
}
