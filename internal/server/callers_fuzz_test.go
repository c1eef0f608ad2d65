package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/valyala/fasthttp"
)

// FuzzCallers reads any file of tokens, passwords or path tokens, and asks whether a caller without
// credentials is known. He never is.
func FuzzCallers(f *testing.F) {
	f.Add([]byte("token,user,1,\"group a,group b\"\n"))
	f.Add([]byte("\"a\"\"b\",\xff,\n\n,,\n"))
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz\n\n abcdefghijklmnopqrstuvwxy2\r\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, callers := range []*Callers{{TokenFile: file}, {BasicFile: file}, {PathTokenFile: file}} {
			if callers.Load() != nil {
				continue
			}
			var header fasthttp.RequestHeader
			header.SetRequestURI("/mutate")
			if callers.knows(&header) {
				t.Errorf("%q: a caller without credentials is known", content)
			}
		}
	})
}
