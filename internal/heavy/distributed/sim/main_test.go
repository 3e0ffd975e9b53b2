package main

import (
	"math"
	"strings"
	"testing"
)

// TestLoad checks one line of the table by hand: a million conversations with ten runs of six steps a day.
func TestLoad(t *testing.T) {
	f := defaults()
	l := f.load(1e6)
	steps := 1e6 * 10 * 6 * f["peak"] / 86400
	if math.Abs(l.stepsPerSecond-steps) > 1e-6 || math.Abs(l.inProgress-5*steps) > 1e-6 {
		t.Errorf("%.1f steps/s and %.0f runs in progress, want %.1f", l.stepsPerSecond, l.inProgress, steps)
	}
	if want := steps * 33; math.Abs(l.transactions-want) > 1e-6 {
		t.Errorf("%.0f transactions/s, want %.0f", l.transactions, want)
	}
	if l.databases < 2 || l.limit == "" {
		t.Errorf("%+v", l)
	}
	var b strings.Builder
	if err := printTable(&b, f); err != nil || strings.Count(b.String(), "\n") != 7 {
		t.Errorf("%v\n%s", err, &b)
	}
}

// TestSet checks that a flag takes only a number with which the table can be computed.
func TestSet(t *testing.T) {
	for _, value := range []string{"", "x", "0", "-4", "NaN", "Inf", "1e999", "1e300"} {
		if f := defaults(); f.set("use", value) == nil || f["use"] != 0.6 {
			t.Errorf("%q is accepted: %v", value, f["use"])
		}
	}
	if f := defaults(); f.set("use", "0.5") != nil || f["use"] != 0.5 {
		t.Error("0.5 is not accepted")
	}
}
