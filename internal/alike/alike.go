// Package alike suggests known names for a misspelled one.
package alike

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// distanceMax is how many letters may be wrong.
	distanceMax = 3
	// namesMax is how many names are told.
	namesMax = 3
)

// Hint returns a suggestion of up to three known names that are similar to name, such as
// ", did you mean a or b?". It returns "" if there are none.
func Hint(name string, known []string) string {
	// cobra knows that of its subcommands.
	command := &cobra.Command{SuggestionsMinimumDistance: distanceMax}
	for _, k := range known {
		command.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	names := command.SuggestionsFor(name)
	if i := slices.IndexFunc(names, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		names = names[i : i+1]
	}
	if len(names) == 0 || name == "" {
		return ""
	}
	return ", did you mean " + strings.Join(names[:min(len(names), namesMax)], " or ") + "?"
}
