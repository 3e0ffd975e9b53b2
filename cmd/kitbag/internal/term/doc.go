// Package term is the terminal of a conversation: an editor for messages, text that streams in as
// Markdown, a line that shows what goes on, and questions.
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
// It does not use the alternate screen: what is finished is printed, so that the terminal's own
// scrolling, search and copying work. Only the last lines are drawn again: the end of the text that
// streams in, the status, and the editor or a question.
//
// All decisions are in state, which changes only in update, without input and output. Screen sends it
// messages through bubbletea, and prints.
//
// # Trust
//
// What is printed may come from a model, a tool or a server. Stream escapes control characters after
// the Markdown is parsed, since a character reference can stand for one. Print keeps the colours of the
// program and removes every other control sequence; its caller removes colours from text of others.
//
// A question is answered only by keys that were typed after it was shown. When it is on the screen, the
// terminal is asked for the position of its cursor: it answers after all keys that were typed before.
// Until then keys are dropped.
package term
