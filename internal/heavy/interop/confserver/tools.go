package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type none struct{}

// picture is a PNG with one pixel, sound a WAV without samples.
var (
	picture = unbase64("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/VscvDQAAAABJRU5ErkJggg==")
	sound   = unbase64("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
)

func unbase64(s string) []byte {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err) // a constant above is wrong
	}
	return data
}

// returning returns a tool that returns the blocks.
func returning(name string, blocks ...message.Block) tool.Tool {
	return tool.Must(tool.New(name, "Returns content of some kind.", func(context.Context, none) (tool.Result, error) {
		return tool.Result{Blocks: blocks}, nil
	}))
}

func embedded(uri, kind, text string) *message.Data {
	return &message.Data{Name: uri, MediaType: kind, Bytes: []byte(text)}
}

// contentTools return all kinds of content.
func contentTools() []tool.Tool {
	image := &message.Data{MediaType: "image/png", Bytes: picture}
	return []tool.Tool{
		returning("test_simple_text", &message.Text{Text: "This is a simple text response for testing."}),
		returning("test_image_content", image),
		returning("test_audio_content", &message.Data{MediaType: "audio/wav", Bytes: sound}),
		returning("test_embedded_resource", embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
		returning("test_multiple_content_types", &message.Text{Text: "Multiple content types test:"}, image,
			embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`)),
		tool.Must(tool.New("test_error_handling", "Fails.", func(context.Context, none) (string, error) {
			return "", errors.New("this tool intentionally returns an error for testing")
		})),
		schemaTool{"json_schema_2020_12_tool", schema2020},
		schemaTool{"test_x_mcp_header", schemaHeaders},
	}
}

// A schemaTool has a schema that cannot be derived from a Go type and must be listed unchanged.
type schemaTool struct{ name, schema string }

const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},
"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
"additionalProperties":false}`

const schemaHeaders = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
"priority":{"type":"integer","x-mcp-header":"Priority"},"verbose":{"type":"boolean","x-mcp-header":"Verbose"}}}`

func (s schemaTool) Info() tool.Info {
	return tool.Info{Name: s.name, Description: "Has an unusual schema.", Input: json.RawMessage(s.schema)}
}

func (schemaTool) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) { yield(tool.Text("ok"), nil) }
}

// pause is the time that the suite requires between two reports.
const pause = 50 * time.Millisecond

// reporting returns a tool that reports its progress to the user.
func reporting(name string, steps ...string) tool.Tool {
	return tool.Must(tool.NewStream(name, "Reports what it does.", func(ctx context.Context, _ none) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for i, s := range steps {
				if i > 0 {
					time.Sleep(pause)
				}
				if !yield(tool.Chunk{Block: &message.Text{Text: s}, ForUser: true}, nil) {
					return
				}
			}
			yield(tool.Text("done"), nil)
		}
	}))
}

func reportingTools() []tool.Tool {
	return []tool.Tool{
		reporting("test_tool_with_logging", "Tool execution started", "Tool processing data", "Tool execution completed"),
		reporting("test_tool_with_progress", "0 of 100", "50 of 100", "100 of 100"),
		reporting("test_streaming_elicitation", "one", "two"),
		reporting("test_logging_tool", "a trace"),
		reporting("test_reconnection", "working"),
	}
}

// changingTools change the toolkit that they are in.
func changingTools(tk func() *toolkit.Toolkit) []tool.Tool {
	changing := func(name string, change func() error) tool.Tool {
		return tool.Must(tool.New(name, "Changes a list, and changes it back.", func(context.Context, none) (string, error) {
			return "changed", change()
		}))
	}
	return []tool.Tool{
		changing("test_trigger_tool_change", func() error {
			return errors.Join(tk().Add("", returning("test_temporary_tool")), tk().Remove("test_temporary_tool"))
		}),
		changing("test_trigger_prompt_change", func() error {
			temporary := toolkit.Group{Name: temporaryGroup, Description: "Exists for a moment, with a prompt."}
			set := func(groups ...toolkit.Group) error {
				return tk().Update(func(c *toolkit.Config) error { c.Groups = groups; return nil })
			}
			before := tk().Config().Groups
			defer time.Sleep(100 * time.Millisecond) // the prompt must be missing, or there, for long enough to be noticed
			err := set(append(slices.Clone(before), temporary)...)
			time.Sleep(300 * time.Millisecond)
			return errors.Join(err, set(before...))
		}),
	}
}
