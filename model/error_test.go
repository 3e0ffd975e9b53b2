package model_test

import (
	"errors"
	"testing"

	"github.com/kitbag-go/kitbag/model"
)

// TestErrorText: the text of an error has the message or else the cause.
func TestErrorText(t *testing.T) {
	refused := errors.New("dial tcp: refused")
	for _, row := range []struct {
		err  model.Error
		want string
	}{
		{model.Error{Kind: model.KindConnection}, "model call: connection"},
		{model.Error{Kind: model.KindConnection, Err: refused}, "model call: connection: dial tcp: refused"},
		{model.Error{Kind: model.KindUpstream, Status: 502, Err: refused}, "model call: upstream (HTTP 502): dial tcp: refused"},
		{model.Error{Kind: model.KindConnection, Message: "no answer", Err: refused}, "model call: connection: no answer"},
	} {
		if got := row.err.Error(); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}
