package app

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
	"github.com/fastadmit/fastadmit/internal/printable"
)

type convertOptions struct {
	selection
	skip bool
}

func newConvertCommand(o *options) *cobra.Command {
	c := &convertOptions{selection: selection{options: o}}
	cmd := &cobra.Command{
		Use:   "convert FILE|FOLDER|-...",
		Short: "Print policies of Kyverno and Gatekeeper as Kubernetes' own policies",
		Long: `Translates policies of Kyverno and Gatekeeper that are written in CEL, and prints them as Kubernetes'
ValidatingAdmissionPolicies, MutatingAdmissionPolicies and bindings, which kube-apiserver also evaluates
without fastadmit. Comments of the documents are kept. The other commands and the server read the same
documents and evaluate this translation of them, so you need not convert anything.

It reads ValidatingPolicy, MutatingPolicy, their Namespaced kinds and PolicyException of
policies.kyverno.io, ClusterPolicy and Policy with rules validate.cel, and ConstraintTemplates with the
engine K8sNativeValidation with their Constraints. Give documents that belong together at once. Other
objects are ignored. What has no translation is an error with file, line and field.

Exits with 0 if everything was translated, 1 if something was not or could not be read, 2 if the command
is wrong.`,
		Example: "  fastadmit convert policies/ > converted.yaml\n" +
			"  kubectl get vpol,mpol -o yaml | fastadmit convert -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("got no arguments, want files or folders with policies, or - for standard input")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return manifestExtensions(), cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: c.run,
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.skip, "skip-untranslatable", false, "print the others if a document has no translation, and exit with 0")
	c.untrusted = true
	flags.BoolVar(&c.allowOutside, "allow-files-outside", false,
		"read files outside of the given folders, to which symbolic links lead; only for files that you trust")
	return cmd
}

func (c *convertOptions) run(cmd *cobra.Command, paths []string) error {
	items := manifest.Read(paths, cmd.InOrStdin(), c.trees())
	var errs []error
	for i := range items {
		if fault := items[i].Fault; fault != nil && !fault.IsNoObject() {
			errs = append(errs, fault)
		}
	}
	items = slices.DeleteFunc(items, func(item manifest.Item) bool { return item.Fault != nil })
	translated := policies.Translate(items, translate.Options{Now: time.Now()})
	errs = append(errs, translated.Errors...)
	for _, note := range translated.Notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: %s\n", printable.Plain(note))
	}
	if len(translated.Items) == 0 && len(errs) == 0 {
		return failed(fmt.Errorf("there is nothing to convert: no policy of Kyverno or Gatekeeper in %s", strings.Join(paths, ", ")))
	}
	if len(errs) > 0 && !c.skip {
		if len(translated.Items) > 0 {
			errs = append(errs, errors.New("--skip-untranslatable prints the translations of the others"))
		}
		return failed(errors.Join(errs...))
	}
	for _, err := range errs {
		fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: %s\n", printable.Plain("left out: "+err.Error()))
	}
	if len(translated.Items) == 0 {
		return failed(fmt.Errorf("there is nothing to convert: no document in %s has a translation", strings.Join(paths, ", ")))
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	return failed(errors.Join(translated.Write(out), out.Flush()))
}
