module github.com/kitbag-go/kitbag/internal/temporalserver

go 1.26.0
