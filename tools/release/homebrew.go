package main

import (
	"context"
	"os"
	"strings"
	"text/template"
)

// formulaName is what Homebrew installs the archives with.
const formulaName = "fastadmit.rb"

// formula is Homebrew's formula. Homebrew runs on macOS and Linux.
var formula = template.Must(template.New(formulaName).Parse(`# Made with the release; its checksums are in SHA256SUMS too.
class Fastadmit < Formula
  desc "Run admission plugins and policies of Kubernetes on manifests and clusters"
  homepage "{{.Homepage}}"
  version "{{.Version}}"
  license "Apache-2.0"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Archives}}
    on_{{.Processor}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "fastadmit"
    generate_completions_from_executable(bin/"fastadmit", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fastadmit version")
  end
end
`))

type (
	brewSystem struct {
		Name     string
		Archives []brewArchive
	}
	brewArchive struct{ Processor, URL, SHA256 string }
)

// homebrew writes the formula.
func (r *release) homebrew(context.Context) error {
	var systems []brewSystem
	for _, s := range []struct{ os, name string }{{"darwin", "macos"}, {"linux", "linux"}} {
		system := brewSystem{Name: s.name}
		for _, p := range []struct{ arch, name string }{{"arm64", "arm"}, {"amd64", "intel"}} {
			url, sum, err := r.download(s.os, p.arch)
			if err != nil {
				return err
			}
			system.Archives = append(system.Archives, brewArchive{p.name, url, sum})
		}
		systems = append(systems, system)
	}
	var text strings.Builder
	if err := formula.Execute(&text, map[string]any{"Homepage": source, "Version": r.version, "Systems": systems}); err != nil {
		return err
	}
	return os.WriteFile(r.path(formulaName), []byte(text.String()), 0o644)
}
