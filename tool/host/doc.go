// Package host lets a tool send requests to the program that runs the tool: to ask the user a question, or to sample the
// program's model.
//
// A program that runs calls for a user, such as an agent or a gateway, implements [Host] and passes the Host in the
// context of the call:
//
//	for ch, err := range tool.Run(host.With(ctx, h), t, call) { … }
//
// The tool, or the MCP client behind the tool, gets the Host from the context:
//
//	h := host.From(ctx)
//	if h == nil {
//		return errors.New("no host to ask; run the tool through an agent")
//	}
//	answer, err := h.Elicit(ctx, host.Elicitation{Server: "shop", Message: "Which size?", Schema: schema})
//
// Elicitation and sampling are MCP's names for these requests, which servers send to clients.
//
// # Questions to the user
//
// An [Elicitation] is a form to fill in, with a JSON Schema of flat fields, or a page to visit. [Elicitation.Check]
// reports whether a question may be shown, and [Elicitation.Accept] validates the filled form. A Host shows the server's
// name with every question, and for a page the whole URL and its [Elicitation.Site]. A Host never opens or fetches a page
// by itself. What a user types into a form is for the server only: a Host does not store it or show it to the model.
//
// # Trust
//
// The text of a question is untrusted: it may pretend to come from another party, and a form may ask for secrets.
// [Elicitation.Warnings] finds the obvious cases only; the user has to judge.
package host
