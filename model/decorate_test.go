package model_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/model"
)

type endless struct{ model.Model }

func (e endless) Unwrap() model.Model { return e }

// TestEndlessUnwrap: a model that unwraps to itself is one without the capability.
func TestEndlessUnwrap(t *testing.T) {
	if _, ok := model.As[model.Named](endless{}); ok {
		t.Error("it has a name")
	}
}
