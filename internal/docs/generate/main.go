// Command generate writes the generated parts of the documents. "make docs" runs it in the root of the repository.
package main

import (
	"fmt"
	"os"
	"path"

	"github.com/fastadmit/fastadmit/internal/docs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "generate: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	texts, err := docs.Generate()
	if err != nil {
		return err
	}
	for name, want := range texts {
		if got, err := docs.Read(name); err == nil && got == want {
			continue
		}
		if err := write(name, want); err != nil {
			return err
		}
		fmt.Println(name)
	}
	return nil
}

// write writes a file, or removes it if it has no text.
func write(name, text string) error {
	if text == "" {
		return os.Remove(name)
	}
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
