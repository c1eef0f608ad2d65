// Package docs generates the parts of the documents that follow from the code: the tables of plugins, flags, fields,
// metrics and limits, the output of commands, the pages of the chart's policies, the JSON schemas of the configuration and of reports, and
// the list of linked modules.
//
// "make docs" writes them, and the tests in the root of the repository compare them. The package is a part of the main
// module, because it runs the commands of fastadmit; the modules below tools must not depend on fastadmit.
package docs

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission/example/creator"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

const (
	schemaFile  = "docs/configuration.schema.json"
	modulesFile = "testdata/linked_modules.txt"
)

// generated is a generated block of a document: its kind, and its text.
var generated = regexp.MustCompile(`(?s)<!-- generated: (.*?) -->\n(.*?)<!-- end -->`)

// WithoutGenerated removes the generated blocks from the text of a document.
func WithoutGenerated(text string) string { return generated.ReplaceAllString(text, "") }

// A generator has the sources of several blocks.
type generator struct {
	sources []Source
	modules []string       // that the binary links
	schema  map[string]any // of the configuration
}

// Generate returns the text that each generated file, and each document with generated blocks, should have, by name. A file that should
// not exist has an empty text. The working directory must be the root of the repository.
func Generate() (map[string]string, error) {
	g := &generator{}
	var err error
	if g.sources, err = Sources(); err != nil {
		return nil, err
	}
	if g.modules, err = linkedModules(); err != nil {
		return nil, err
	}
	if g.schema, err = g.newSchema(); err != nil {
		return nil, err
	}
	schema, err := indented(g.schema)
	if err != nil {
		return nil, err
	}
	reported, err := indented(g.newReportSchema())
	if err != nil {
		return nil, err
	}
	texts := map[string]string{schemaFile: schema, reportSchemaFile: reported, modulesFile: strings.Join(g.modules, "\n") + "\n"}
	pages, err := policyPages()
	if err != nil {
		return nil, err
	}
	documents, err := Documents()
	if err != nil {
		return nil, err
	}
	for _, name := range documents {
		if strings.HasPrefix(name, policyPagesFolder) {
			texts[name] = "" // unless it is one of the pages
			continue
		}
		text, err := Read(name)
		if err != nil {
			return nil, err
		}
		if strings.Contains(text, "<!-- generated:") {
			if texts[name], err = g.document(name, text); err != nil {
				return nil, err
			}
		}
	}
	maps.Copy(texts, pages)
	return texts, nil
}

// document generates the blocks of a document.
func (g *generator) document(name, text string) (string, error) {
	begun, whole := strings.Count(text, "<!-- generated:"), len(generated.FindAllString(text, -1))
	if begun != whole {
		return "", fmt.Errorf("%s: got %d generated blocks, of which %d end with <!-- end -->", name, begun, whole)
	}
	var failed error
	text = generated.ReplaceAllStringFunc(text, func(block string) string {
		what := generated.FindStringSubmatch(block)[1]
		content, err := g.block(name, what)
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: block %q: %w", name, what, err)
		}
		return fmt.Sprintf("<!-- generated: %s -->\n%s<!-- end -->", what, content)
	})
	return text, failed
}

// block generates a block of a document. The first word is the kind of block.
func (g *generator) block(document, what string) (string, error) {
	verb, rest, _ := strings.Cut(strings.Replace(what, "\n", " ", 1), " ")
	switch verb {
	case "plugins": // the table of plugins
		return pluginTable()
	case "missing-plugins": // the plugins of Kubernetes that fastadmit does not have
		return missingPlugins(), nil
	case "times": // a sentence about the tables of "make compare"
		return times()
	case "dependencies": // a sentence about modules
		return g.dependencies()
	case "flags": // COMMAND
		return flagTable(rest)
	case "metrics":
		return g.metricTable()
	case "limits": // lines of FOLDER CONSTANT...
		return limitTable(document, rest)
	case "crd": // FILE KIND, a file of the chart
		file, kind, _ := strings.Cut(rest, " ")
		return resourceTable("deploy/chart/files/"+file, kind)
	case "policies": // KIND, of the policies of the chart
		return policyTable(rest)
	case "configuration": // a part of the configuration, such as plugins[]
		return g.configurationTable(rest)
	case "file": // a file, relative to the document
		text, err := Read(path.Join(path.Dir(document), rest))
		return "```" + strings.TrimPrefix(path.Ext(rest), ".") + "\n" + text + "```\n", err
	case "run": // output of bin/fastadmit
		return session("bin/fastadmit", rest), nil
	case "example": // output of the binary with the plugin of admission/README.md
		return session("go run ./admission/example", rest, app.WithPlugin(creator.Plugin())), nil
	}
	return "", fmt.Errorf("got %q, want plugins, missing-plugins, times, dependencies, flags, metrics, limits, crd, policies, "+
		"configuration, file, run or example", verb)
}

// session shows a command and its output.
func session(program, args string, options ...app.Option) string {
	stdout, stderr, _ := Run(strings.Fields(args), options...)
	return "```console\n$ " + program + " " + args + "\n" + stdout + stderr + "```\n"
}

// Run runs a command of fastadmit in this process.
func Run(args []string, options ...app.Option) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := app.NewCommand(options...)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = app.Execute(cmd)
	return out.String(), errs.String(), code
}

var direct = regexp.MustCompile(`(?m)^(?:require )?\s*\S+ v\S+$`)

// dependencies counts the modules of go.mod and those that the binary links.
func (g *generator) dependencies() (string, error) {
	text, err := Read("go.mod")
	return fmt.Sprintf("fastadmit has %d direct dependencies. The binary links %d modules and has about 64 MB, in a release 57 MB.\n",
		len(direct.FindAllString(text, -1)), len(g.modules)), err
}

// linkedModules returns the modules that the binary links.
func linkedModules() ([]string, error) {
	modules, err := ListPackages("{{with .Module}}{{.Path}}{{end}}", "./cmd/fastadmit")
	slices.Sort(modules)
	return slices.Compact(modules), err
}
