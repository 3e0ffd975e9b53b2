// Package sample has tools whose descriptions are in comments, for the test of
// docgen.
package sample

import (
	"context"
	"fmt"

	"github.com/kitbag-go/kitbag/tool"
)

// Unit is a unit of temperature.
type Unit string

// The units.
const (
	Celsius    Unit = "celsius"
	Fahrenheit Unit = "fahrenheit"
)

// Depth counts.
type Depth int

const (
	_ Depth = iota
	Shallow
	Deep
)

// Size is a number whose constants are not choices.
type Size int

// Kilo is a size.
const Kilo Size = 1024

// A Page is of any type.
type Page[T any] struct {
	// Number counts from one,
	// with "quotes", commas and
	// several lines.
	Number int `json:"number"`
	Of     T   `json:"of"` // what is on it
}

// WeatherIn asks for the weather.
type WeatherIn struct {
	// The city, in English.
	//
	// Not the country.
	City        string     `json:"city"`
	From, Until int        // days from now
	Unit        Unit       `json:"unit,omitempty"`
	Depth       Depth      `json:"depth,omitempty"`
	Size        Size       `json:"size,omitempty"`
	Page        Page[Unit] `json:"page"`
	Tagged      string     `json:"tagged" jsonschema_description:"the tag goes before"` // not this
	hidden      int        // not part of the JSON
}

// Station provides the weather.
type Station struct{ Name string }

// Weather tells what the weather will be. It may be wrong.
func (s *Station) Weather(_ context.Context, in WeatherIn) (string, error) {
	return fmt.Sprintf("%s: %s, %d", s.Name, in.City, in.hidden), nil
}

// Close does not become a tool.
func (s *Station) Close() error { return nil }

// Tools is made before the generated init function registers the comments, so schemas must be made later.
var Tools, Err = tool.Methods(&Station{Name: "north"}, nil)
