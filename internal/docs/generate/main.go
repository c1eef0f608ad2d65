// Command generate writes the generated parts of the documents. "make docs" runs it in the root of the repository.
package main

import (
	"fmt"
	"os"

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
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			return err
		}
		fmt.Println(name)
	}
	return nil
}
