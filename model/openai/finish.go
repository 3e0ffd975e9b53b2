package openai

import (
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/model"
)

// finish sends what is known at the end only, and the finish. A call whose name never came
// is passed on without one: the model is then told that there is no such tool.
func (a *answer) finish() error {
	if err := failedFinish(a.reason); err != nil {
		return err
	}
	for i, c := range a.calls {
		if c.sentID == "" {
			if err := a.start(i); err != nil {
				return err
			}
		}
	}
	if details := a.details.encode(); details != nil { // they hold the text as well
		a.extra("reasoning_details", details)
		delete(a.extras, "reasoning_content")
	}
	if len(a.calls) == 0 {
		delete(a.extras, "reasoning_content") // wanted back beside tool calls only
	}
	if extra := a.tagged(a.extras); extra != nil {
		if err := a.send(&model.ThinkingDelta{Extra: extra}); err != nil {
			return err
		}
	}
	return a.send(&model.Finish{ID: a.chunk.ID, Model: a.chunk.Model, Usage: a.usage, Reason: finishReason(a.reason, len(a.calls) > 0)})
}

// finishReason returns a server's reason in our words. Many servers say "stop"
// after calls too, and some say nothing: that there are calls decides. A reason that is not
// known is passed on as it is.
func finishReason(reason string, calls bool) model.FinishReason {
	switch strings.ToLower(reason) {
	case "", "stop", "eos", "end_turn", "stop_sequence", "tool_calls", "tool_call", "function_call", "tool_use":
		if calls {
			return model.FinishToolCalls
		}
		return model.FinishStop
	case "length", "max_tokens", "model_length":
		return model.FinishLength
	case "content_filter", "safety":
		return model.FinishFilter
	}
	return model.FinishReason(reason)
}

// failedFinish returns the error for a reason that stands for one: gateways
// and DeepSeek end the stream of a failed upstream like that.
func failedFinish(reason string) error {
	switch reason {
	case "error", "insufficient_system_resource":
		return badAnswer("the server ended the answer with the reason " + strconv.Quote(reason))
	}
	return nil
}
