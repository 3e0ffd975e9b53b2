// Package host lets a tool ask whoever runs it: the person something, or the
// model for an answer.
//
// Whoever runs calls for somebody, an agent or a gateway, is a [Host] and says
// so in the context of the call:
//
//	for ch, err := range tool.Run(host.With(ctx, h), t, call) { … }
//
// The tool, or the client of the MCP server that the tool stands for, finds it
// there:
//
//	h := host.From(ctx)
//	if h == nil {
//		return errors.New("there is nobody to ask")
//	}
//	answer, err := h.Elicit(ctx, host.Elicitation{Server: "shop", Message: "Which size?", Schema: schema})
//
// The words are those of MCP, where servers ask clients such things
// (elicitation and sampling).
//
// # Questions to the person
//
// An [Elicitation] is a form to fill in, with a JSON Schema of flat fields, or a
// page to visit. [Elicitation.Check] tells whether it may be shown at all, and
// [Elicitation.Accept] whether what was filled in fits. A host shows the server's
// name with every question, and the whole URL of a page with its host; it never
// opens or fetches a page by itself. What a person types into a form belongs to
// the server that asked: a host does not store it, or show it to the model.
//
// # Trust
//
// What a server asks is a claim of that server. Its text may try to pass for
// somebody else's, and a form may ask for what no server should be told.
// [Elicitation.Warnings] finds the plain cases of that, and no more than those: a
// person has to judge.
package host
