// Package pick chooses the model of the examples: a real one where the
// environment names one, else a scripted one, so that they run offline.
package pick

import (
	"log"
	"os"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// Model returns the model that OPENAI_API_KEY, OPENAI_BASE_URL and KITBAG_MODEL
// name. Without a key it plays the turns.
func Model(turns ...scripted.Turn) model.Model {
	if os.Getenv("OPENAI_API_KEY") == "" {
		log.SetFlags(0)
		log.Print("(OPENAI_API_KEY is not set: the model's words are scripted)")
		return scripted.New(turns...)
	}
	m, err := openai.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	return m
}
