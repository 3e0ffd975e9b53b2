package agent

import "github.com/kitbag-go/kitbag/agent/internal/decide"

// Short names for tests.
const (
	statusNew      = decide.New
	statusAllowed  = decide.Allowed
	statusAsking   = decide.Asking
	statusCovered  = decide.Covered
	statusExternal = decide.External
	statusRunning  = decide.Running
	statusDone     = decide.Done

	outcomeUnknown = decide.OutcomeUnknown
)
