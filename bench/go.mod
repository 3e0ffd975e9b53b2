module github.com/kitbag-go/kitbag/bench

go 1.26.0
