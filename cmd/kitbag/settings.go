package main

import (
	"encoding/json"
	"os"
	"reflect"

	"github.com/spf13/cobra"
)

// settings are what flags, variables and configurations set alike.
type settings struct {
	modelSettings
	system     string // a file
	maxSteps   int    // model calls for one task; 0 for the agent's default
	window     int    // the model's context window in tokens; 0 for the model's known window, or else the agent's default
	modelsFile string // a table of windows and prices; "" for none
	maxCost    float64
}

// A setting is one of the settings: its key in a configuration, its flag and its variable, if it has these.
type setting struct {
	key, flag, variable string
	want                string                // what its value must be
	pointer             func(s *settings) any // to its value
}

// allSettings is in the order in which they are shown to the user.
var allSettings = []setting{
	{"model", "model", "KITBAG_MODEL", "a string", func(s *settings) any { return &s.model }},
	{"api", "api", "KITBAG_API", "a string", func(s *settings) any { return &s.api }},
	{"baseURL", "base-url", "", "a string", func(s *settings) any { return &s.endpoint }},
	{"fallback", "fallback", "", "a list of models", func(s *settings) any { return &s.fallback }},
	{"effort", "effort", "", "a string", func(s *settings) any { return &s.effort }},
	{"thinking", "thinking", "", "a string", func(s *settings) any { return &s.thinking }},
	{"cache", "cache", "", "a string", func(s *settings) any { return &s.cache }},
	{"lateTools", "", "", "true or false", func(s *settings) any { return &s.lateTools }},
	{"system", "system", "", "the name of a file", func(s *settings) any { return &s.system }},
	{"maxSteps", "max-steps", "", "a positive whole number of model calls, such as 20", func(s *settings) any { return &s.maxSteps }},
	{"window", "window", "", "a positive whole number of tokens, such as 32000", func(s *settings) any { return &s.window }},
	{"models", "", "", "the name of a file", func(s *settings) any { return &s.modelsFile }},
	{"maxCost", "max-cost", "", "a positive number of US dollars, such as 2.5", func(s *settings) any { return &s.maxCost }},
}

func (t *setting) value(s *settings) reflect.Value { return reflect.ValueOf(t.pointer(s)).Elem() }

// read reads the setting from a configuration, and reports whether its value is what it must be.
func (t *setting) read(s *settings, data json.RawMessage) bool {
	return json.Unmarshal(data, t.pointer(s)) == nil && !isNegative(t.value(s))
}

func isNegative(v reflect.Value) bool {
	return v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0
}

func isSet(v reflect.Value) bool {
	return !v.IsZero() && !(v.Kind() == reflect.Slice && v.Len() == 0)
}

// merge returns s with the settings of other that s does not have.
func (s settings) merge(other settings) settings {
	for _, t := range allSettings {
		if v := t.value(&s); !isSet(v) {
			v.Set(t.value(&other))
		}
	}
	return s
}

// apply takes over the settings of c for which neither a flag nor a variable is set.
func (s *settings) apply(cmd *cobra.Command, c settings) {
	for _, t := range allSettings {
		if v := t.value(&c); isSet(v) && !cmd.Flags().Changed(t.flag) && (t.variable == "" || os.Getenv(t.variable) == "") {
			t.value(s).Set(v)
		}
	}
}
