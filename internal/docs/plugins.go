package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/growth"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/handlers"
)

// pluginTable makes a table of the output of "fastadmit plugins".
func pluginTable() (string, error) {
	const columns = 6
	stdout, _, _ := Run([]string{"plugins", "-o", "wide"})
	table := "| plugin | what it does | kind | in kube-apiserver | needs |\n|---|---|---|---|---|\n"
	for i, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		cells := regexp.MustCompile(`  +`).Split(line, -1)
		if len(cells) != columns {
			return "", fmt.Errorf("fastadmit plugins -o wide: got %d columns, want %d in %q", len(cells), columns, line)
		}
		if i == 0 {
			continue
		}
		table += fmt.Sprintf("| [%s](../handlers/%s/README.md) | %s | %s | %s | %s |\n",
			cells[0], strings.ToLower(cells[0]), cells[3], strings.ReplaceAll(cells[1], ",", ", "), cells[5], cells[4])
	}
	return table, nil
}

func missingPlugins() string {
	table := "| plugin | in Kubernetes | why it is not here |\n|---|---|---|\n"
	for _, p := range handlers.NotHere() {
		table += fmt.Sprintf("| %s | v%s to v%s | It %s. |\n", p.Name, p.First, p.Last, p.Reason)
	}
	return table
}

// flagTable makes a table of the flags of a command.
func flagTable(command string) (string, error) {
	cmd, _, err := app.NewCommand().Find([]string{command})
	if err != nil {
		return "", err
	}
	table := "| flag | default | meaning |\n|---|---|---|\n"
	rows := 0
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		name, value := "--"+f.Name, ""
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + "`, `" + name
		}
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", name, value, tableCell(f.Usage))
		rows++
	})
	if rows == 0 {
		return "", fmt.Errorf("fastadmit %s has no flags", command)
	}
	return table, nil
}

// tableCell makes a text fit for a cell of a Markdown table.
func tableCell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(strings.Join(strings.Fields(text), " "))
}

var ratioInTable = regexp.MustCompile(`, ([0-9.]+)x`)

// ratios returns the ratios in a row of a table of "make compare".
func ratios(document, row string) (all []float64, err error) {
	text, err := Read(document)
	if err != nil {
		return nil, err
	}
	_, line, _ := strings.Cut(text, "\n| "+row)
	line, _, _ = strings.Cut(line, "\n")
	for _, m := range ratioInTable.FindAllStringSubmatch(line, -1) {
		ratio, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: row %q: %w", document, row, err)
		}
		all = append(all, ratio)
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("%s: got the row %q of %s, want one with ratios", document, line, row)
	}
	return all, nil
}

// times returns a sentence about controller-runtime in the tables of "make compare", and that of policyTimes. The first has its ratio to
// fastadmit at 100 requests a second in README.md, whose rows have ratios to the floor, and those at saturation in bench/README.md.
func times() (string, error) {
	const at100 = 1 // the column after 20 a second
	theirs, err := ratios("README.md", "controllerruntime |")
	if err != nil {
		return "", err
	}
	ours, err := ratios("README.md", "fastadmit |")
	if err != nil {
		return "", err
	}
	full, err := ratios("bench/README.md", "sigs.k8s.io/controller-runtime")
	if err != nil {
		return "", err
	}
	policies, err := policyTimes()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("For the same call, a webhook written with controller-runtime needs %.0f times "+
		"the processor time at 100 calls a second, and %.0f to %.0f times at saturation. %s\n",
		theirs[at100]/ours[at100], slices.Min(full), slices.Max(full), policies), nil
}

// policyTimes returns a sentence about what policies for Pods add to a create, as "make compare-cluster" measured it.
func policyTimes() (string, error) {
	const file, number = "bench/compare/growth.json", 1000
	results, err := growth.Read(file)
	if err != nil {
		return "", err
	}
	added := func(release, by string) string {
		if c := results.Find(release, growth.Matching); c != nil {
			if row := c.Find(by, number); row != nil && row.Missing == "" {
				return bench.Time.Format(row.Added.Median)
			}
		}
		err = fmt.Errorf("%s: got no time of %s with Kubernetes %s and %d policies, want one: run make compare-cluster", file, by, release, number)
		return ""
	}
	text := fmt.Sprintf("A thousand policies for Pods add %s of processor time to the creation of one in kube-apiserver 1.36, %s in 1.37, and %s "+
		"with fastadmit, the call included.", added("1.36", growth.InTree), added("1.37", growth.InTree), added("1.37", growth.Fastadmit))
	return text, err
}
