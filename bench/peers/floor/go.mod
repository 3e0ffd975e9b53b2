module github.com/kitbag-go/kitbag/bench/peers/floor

go 1.26.0

require (
	github.com/kitbag-go/kitbag/bench v0.0.0
	github.com/sashabaranov/go-openai v1.43.0
)

replace github.com/kitbag-go/kitbag/bench => ../..
