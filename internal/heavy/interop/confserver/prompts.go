package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
)

// userMessages returns a message of the user for each block.
func userMessages(blocks ...message.Block) []*message.Message {
	return []*message.Message{{Role: message.RoleUser, Blocks: blocks}}
}

// temporaryGroup is the group of a prompt. It exists only while the tool test_trigger_prompt_change runs.
const temporaryGroup = "temporary"

func prompts() []mcpserver.Prompt {
	return []mcpserver.Prompt{
		{Name: "test_temporary_prompt", Description: "Exists for a moment.", Groups: []string{temporaryGroup}, Get: func(context.Context, map[string]string) ([]*message.Message, error) {
			return userMessages(&message.Text{Text: "Not for long."}), nil
		}},
		{Name: "test_simple_prompt", Description: "A prompt without arguments.", Get: func(context.Context, map[string]string) ([]*message.Message, error) {
			return userMessages(&message.Text{Text: "This is a simple prompt for testing."}), nil
		}},
		{Name: "test_prompt_with_arguments", Description: "A prompt with arguments.",
			Arguments: []mcpserver.Argument{{Name: "arg1", Description: "The first.", Required: true, Complete: cities}, {Name: "arg2", Description: "The second.", Required: true}},
			Get: func(_ context.Context, args map[string]string) ([]*message.Message, error) {
				return userMessages(&message.Text{Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", args["arg1"], args["arg2"])}), nil
			}},
		{Name: "test_prompt_with_embedded_resource", Description: "A prompt that contains a resource.",
			Arguments: []mcpserver.Argument{{Name: "resourceUri", Description: "Its URI.", Required: true}},
			Get: func(_ context.Context, args map[string]string) ([]*message.Message, error) {
				return userMessages(embedded(args["resourceUri"], "text/plain", "Embedded resource content for testing."),
					&message.Text{Text: "Please process the embedded resource above."}), nil
			}},
		{Name: "test_prompt_with_image", Description: "A prompt that contains an image.", Get: func(context.Context, map[string]string) ([]*message.Message, error) {
			return userMessages(&message.Data{MediaType: "image/png", Bytes: picture}, &message.Text{Text: "Please analyze the image above."}), nil
		}},
		{Name: "test_input_required_result_prompt", Description: "A prompt that asks.", Get: func(ctx context.Context, _ map[string]string) ([]*message.Message, error) {
			about, err := field(ctx, "user_context", "What context should the prompt use?", "context", "string")
			return userMessages(&message.Text{Text: "Prompt with context: " + about}), err
		}},
	}
}

func cities(_ context.Context, typed string, _ map[string]string) ([]string, error) {
	return []string{typed + "-town", typed + "-city"}, nil
}

func resources() []mcpserver.Resource {
	fixed := func(uri, kind string, content []byte) mcpserver.Resource {
		return mcpserver.Resource{URI: uri, Name: uri, Description: "Always the same.", MediaType: kind,
			Read: func(context.Context, string, map[string]string) ([]byte, error) { return content, nil }}
	}
	return []mcpserver.Resource{
		fixed("test://static-text", "text/plain", []byte("This is the content of the static text resource.")),
		fixed("test://static-binary", "image/png", picture),
		fixed("test://watched-resource", "text/plain", []byte("watched")),
		{URI: "test://template/{id}/data", Name: "template", Description: "One for each id.", MediaType: "application/json",
			Read: func(_ context.Context, _ string, vars map[string]string) ([]byte, error) {
				return json.Marshal(map[string]any{"id": vars["id"], "templateTest": true, "data": "Data for ID: " + vars["id"]})
			}},
	}
}
