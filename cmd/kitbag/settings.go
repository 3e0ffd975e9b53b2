package main

import (
	"encoding/json"
	"os"
	"reflect"

	"github.com/spf13/cobra"
)

// settings can be set by a configuration, and most of them by a flag or an environment variable.
type settings struct {
	modelSettings
	system     string  // a file with the system prompt; "" for the default prompt
	maxSteps   int     // model calls for one task; 0 for the agent's default
	window     int     // the model's context window in tokens; 0 for the model's known window, or else the agent's default
	modelsFile string  // a file with a table of windows and prices; "" for none
	maxCost    float64 // of one task in US dollars; 0 for no limit
}

// A setting describes a field of settings.
type setting struct {
	key            string                // in a configuration
	flag, variable string                // "" for none
	want           string                // which values are valid
	pointer        func(s *settings) any // returns a pointer to the field
}

// allSettings are in the order in which the user sees them.
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

// read sets the field of s to the value in a configuration, and reports whether the value is valid.
func (t *setting) read(s *settings, data json.RawMessage) bool {
	return json.Unmarshal(data, t.pointer(s)) == nil && !isNegative(t.value(s))
}

func isNegative(v reflect.Value) bool {
	return v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0
}

func isSet(v reflect.Value) bool {
	return !v.IsZero() && !(v.Kind() == reflect.Slice && v.Len() == 0)
}

// merge returns s with the settings from other that are not set in s.
func (s settings) merge(other settings) settings {
	for _, t := range allSettings {
		if v := t.value(&s); !isSet(v) {
			v.Set(t.value(&other))
		}
	}
	return s
}

// apply copies the settings from other to s for which neither a flag nor a variable is set.
func (s *settings) apply(cmd *cobra.Command, other settings) {
	for _, t := range allSettings {
		if v := t.value(&other); isSet(v) && !cmd.Flags().Changed(t.flag) && (t.variable == "" || os.Getenv(t.variable) == "") {
			t.value(s).Set(v)
		}
	}
}
