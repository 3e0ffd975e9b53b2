package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

// backgroundName is the tool by which a model looks after its calls that go on in
// the background. It is listed whether there are any or not: a list that changes
// costs the provider's cache of everything that was said.
const backgroundName = "background"

const backgroundDescription = "Looks after a tool call that goes on in the background: shows how far it is, waits for it, or stops it. " +
	"You are told what it returns when it ends, without asking."

type backgroundIn struct {
	Call    string `json:"call" jsonschema_description:"the id of the call"`
	Action  string `json:"action,omitempty" jsonschema:"enum=look,enum=wait,enum=stop,default=look"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"default=60,minimum=1,maximum=3600" jsonschema_description:"how long to wait at most"`
}

func newBackground() (tool.Tool, error) {
	return tool.New(backgroundName, backgroundDescription, lookAfter, tool.Options{Parallel: true, Control: true})
}

func lookAfter(ctx context.Context, in backgroundIn) (string, error) {
	js, _ := ctx.Value(jobsKey{}).(*jobs)
	var j *job
	if js != nil {
		j = js.get(in.Call)
	}
	if j == nil {
		return "", fmt.Errorf("no call %q goes on in the background; if one did, you have been told what it returned", in.Call)
	}
	switch in.Action {
	case "stop":
		j.stop()
	case "wait":
		timer := time.NewTimer(time.Duration(in.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-j.ended:
		case <-timer.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case in.Action == "stop":
		return "Call " + in.Call + " was told to stop. You will be told when it has.", nil
	case j.hasEnded():
		return "Call " + in.Call + " has ended. You are told next what it returned.", nil
	case j.tail == "":
		return "Call " + in.Call + " is still running and has said nothing yet.", nil
	}
	return "Call " + in.Call + " is still running. The end of what it has said so far:\n" + j.tail, nil
}
