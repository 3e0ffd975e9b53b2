// Package term is the terminal of a conversation: an editor for messages, text that streams in as Markdown, a
// status line for the running work, and questions.
//
//	err := term.Run(ctx, term.Options{Colour: true}, func(ctx context.Context, s *term.Screen) error {
//		for {
//			text, err := s.Message(ctx)
//			if err != nil {
//				return err
//			}
//			s.Print("you said " + text)
//		}
//	})
//
// It does not use the alternate screen: finished text is printed, so that the terminal's own scrolling, search and
// copying work. Only the last lines are redrawn: the end of the streamed text, the status line, and the editor or a
// question.
//
// All logic is in the type state. Only its method update changes it, without input or output. Screen prints, and sends
// messages to the state through bubbletea.
//
// # Trust
//
// Printed text may come from a model, a tool or a server. Stream removes control characters after the Markdown is
// parsed, since a character reference can stand for one. Print keeps colours and removes every other control sequence; the
// caller must remove colours from untrusted text.
//
// Keys that were typed before a question was shown cannot answer it: the state draws the question, requests the position
// of the cursor from the terminal, drops all keys that come before the terminal's report, and then shows the cursor. It
// makes two requests, one after the report of the other: the first may be written just before the question.
package term
