package model_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/model"
)

type endless struct{ model.Model }

func (e endless) Unwrap() model.Model { return e }

// TestEndlessUnwrap: As returns false for a model that unwraps to itself.
func TestEndlessUnwrap(t *testing.T) {
	if _, ok := model.As[model.Named](endless{}); ok {
		t.Error("As found a name")
	}
}
