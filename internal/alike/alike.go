// Package alike suggests known names, and fields of a type, for a misspelled one.
package alike

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// distanceMax is the maximum number of wrong letters.
	distanceMax = 3
	// namesMax is the maximum number of suggested names.
	namesMax = 3
)

// Want returns Hint, or ", want one of a, b" with all known names if none is similar.
func Want(name string, known []string) string {
	if hint := Hint(name, known); hint != "" {
		return hint
	}
	return ", want one of " + strings.Join(known, ", ")
}

// Hint returns a suggestion of up to three known names that are similar to name, such as
// ", did you mean a or b?". It returns "" if there are none.
func Hint(name string, known []string) string {
	var near []*cobra.Command // cobra suggests names of subcommands by itself, and compares them in lower case
	for _, k := range known {
		// The distance is at least that of the lengths. To compare takes time for each letter of one and of the other.
		if len(strings.ToLower(name)) <= len(strings.ToLower(k))+distanceMax {
			near = append(near, &cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
		}
	}
	if len(near) == 0 {
		return ""
	}
	command := new(cobra.Command)
	command.AddCommand(near...)
	var names []string
	limit := min(distanceMax, (len(name)+1)/2)                            // any name is near a short one
	for distance := 1; distance <= limit && len(names) == 0; distance++ { // the nearest only
		command.SuggestionsMinimumDistance = distance
		names = command.SuggestionsFor(name)
	}
	if i := slices.IndexFunc(names, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		names = names[i : i+1]
	}
	if len(names) == 0 || name == "" {
		return ""
	}
	return ", did you mean " + strings.Join(names[:min(len(names), namesMax)], " or ") + "?"
}
