//go:build fastjson

package codec_test

import (
	"testing"

	"github.com/valyala/fastjson"

	"github.com/fastadmit/fastadmit/bench/corpus"
)

// BenchmarkDecodeFastJSON is BenchmarkDecode with fastjson's full parse.
func BenchmarkDecodeFastJSON(b *testing.B) {
	body := corpus.MustRead(benchmarked)
	var parser fastjson.Parser
	benchmarkDecode(b, body, func() error {
		_, err := parser.ParseBytes(body)
		return err
	})
}
