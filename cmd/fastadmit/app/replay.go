package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/offline/replay"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// replayFormats are the values of --output. The other formats of reports show objects.
var replayFormats = []string{"text", "json", "yaml", "junit", "sarif", "github"}

type replayOptions struct {
	reviewOptions
	againstConfig   string
	againstPolicies []string
	explainUID      string // --explain
}

func newReplayCommand(o *options) *cobra.Command {
	r := &replayOptions{reviewOptions: reviewOptions{selection: selection{options: o}}}
	cmd := &cobra.Command{
		Use:   "replay RECORDINGS...",
		Short: "Ask recorded reviews again: which answers would change?",
		Long: `Asks reviews that serve recorded, with --record-dir, or that kube-apiserver's audit log has, with any
configuration. Prints which answers differ from the recorded ones or, with --against-config, from those
of that configuration: the decision, messages, warnings, and stored objects. Differences are grouped by
plugin, policy, namespace and resource, with one example each.

Recordings are folders, files, archives of "fastadmit recordings", and standard input for "-". In audit
logs, events of the levels Request and RequestResponse can be asked. Manifests are asked as review
does; they have no recorded answer and need --against-config.

Plugins that count or write (ResourceQuota, EventRateLimit, NamespaceLifecycle, NamespaceAutoProvision) are
left out. The cluster is that of --kubeconfig, which is only read, or of --cluster-state-dir, or a new one in which
every namespace exists; it is not the one at the time of the recording. No plugin calls an address of
its configuration, except with --allow-plugin-calls.

With --explain, the command does not compare: it shows for one review what each plugin and policy decides
with the configuration, and why.

Exits with 0 if all answers are the same, 1 if one differs, 2 if a review could not be asked, or if the
command is wrong.`,
		Example: "  fastadmit replay recordings/ --config=candidate.yaml\n" +
			"  kubectl exec deploy/fastadmit -- fastadmit recordings | fastadmit replay - --config=candidate.yaml --kubeconfig=$HOME/.kube/config\n" +
			"  fastadmit replay audit.log --config=candidate.yaml --against-config=fastadmit.yaml -o json\n" +
			"  fastadmit replay recordings/ --config=fastadmit.yaml --explain=c2cabb77-c72c-463d-aa23-d78813cacd6b",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return broken(r.run(cmd, paths))
		},
	}
	flags := cmd.Flags()
	r.addFlags(cmd)
	r.useKubeconfig("kubeconfig file of a cluster whose objects plugins see; it is only read",
		"folder with objects in YAML or JSON that plugins see; without it and --kubeconfig, they see a new cluster")
	flags.StringVar(&r.againstConfig, "against-config", "", "configuration file whose answers to compare with, instead of the recorded ones")
	flags.StringSliceVar(&r.againstPolicies, "against-policies", nil, "files or folders with policies that belong to --against-config, as --policies")
	flags.StringVarP(&r.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of objects in manifests without one")
	r.addComparisonFlags(cmd)
	flags.StringVar(&r.explainUID, "explain", "", "instead, show for the review with this UID what each plugin and policy decides, and why, as fastadmit "+
		"review --explain; denials have the UID in status.details, the audit log and the log of serve")
	completeFiles(cmd, "against-config", manifestExtensions()...)
	completeFiles(cmd, "against-policies", manifestExtensions()...)
	return cmd
}

// addComparisonFlags adds the flags that replay and upgrade-check have in common.
func (r *reviewOptions) addComparisonFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&r.output, "output", "o", "text", "format: "+strings.Join(replayFormats, ", "))
	completeValues(cmd, "output", replayFormats...)
	r.addTrustFlags(cmd.Flags())
	r.addUserFlags(cmd.Flags())
	r.addPolicyFlags(cmd)
}

func (r *replayOptions) run(cmd *cobra.Command, paths []string) error {
	memory.SetLimit(os.ReadFile)
	switch {
	case len(paths) == 0:
		return errors.New("name recordings to replay, or - for standard input")
	case !slices.Contains(replayFormats, r.output):
		return fmt.Errorf("--output: got %q, want one of %s", r.output, strings.Join(replayFormats, ", "))
	case r.againstConfig == "" && r.againstPolicies != nil:
		return errors.New("--against-policies needs --against-config")
	case r.explainUID != "" && r.againstConfig != "":
		return errors.New("--explain explains the answer of one configuration; leave out --against-config")
	case r.explainUID != "" && !slices.Contains(report.ExplainFormats, r.output):
		return fmt.Errorf("--explain: got -o %s, want one of %s", r.output, strings.Join(report.ExplainFormats, ", "))
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	writer, err := report.New(r.output, out, r.reportOptions("fastadmit replay", cmd.OutOrStdout()))
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	o := &replay.Options{Tree: r.trees(), Stdin: cmd.InOrStdin()}
	before := r.twin() // copies the flags before readyToReplay changes them
	before.configFile, before.policyFiles = r.againstConfig, r.againstPolicies
	prepared, leftOut, err := r.readyToReplay(cmd.Context())
	if err != nil {
		return err
	}
	r.notePolicies(cmd.Context(), cmd.ErrOrStderr(), prepared.Chain)
	o.Review, o.Chain, o.LeftOut = prepared, prepared.Chain, leftOut
	notes := r.replayNotes(o)
	if r.explainUID != "" {
		return r.explainReview(cmd, o, paths, writer, out, notes)
	}
	if r.againstConfig != "" {
		against, more, err := before.readyToReplay(cmd.Context())
		if err != nil {
			return of("--against-config", err)
		}
		o.Against, o.LeftOut = against.Chain, append(o.LeftOut, more...)
	}
	terminal := terminalOf(cmd.ErrOrStderr())
	o.Progress = replayProgress(terminal)
	summary := report.Summary{EmulatedVersion: r.emulated.current().String()}
	summary.Replay, err = replay.Run(cmd.Context(), o, paths, writer.Write)
	if terminal != nil {
		fmt.Fprint(terminal, clearLine)
	}
	if err == nil {
		summary.Replay.Notes = append(notes, summary.Replay.Notes...)
		err = writer.Close(&summary)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return failed(err)
	}
	switch counted := summary.Replay; {
	case counted.NotAsked > 0:
		return &exit{exitBroken, nil}
	case counted.Reviews == 0:
		return &exit{exitBroken, errors.New("there is no review in " + strings.Join(paths, ", "))}
	case counted.Differing > 0:
		return &exit{exitFailed, nil}
	}
	return nil
}

// explainReview explains the reviews with the UID.
func (r *replayOptions) explainReview(cmd *cobra.Command, o *replay.Options, paths []string, writer report.Writer, out *bufio.Writer, notes []string) error {
	summary := report.Summary{EmulatedVersion: r.emulated.current().String()}
	found, err := replay.Explain(cmd.Context(), o, paths, r.explainUID, func(result *report.Result) error {
		summary.Add(result)
		return writer.Write(result)
	})
	if err == nil {
		err = writer.Close(&summary)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return failed(err)
	}
	for _, note := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: note: %s\n", printable.Plain(note))
	}
	switch {
	case found.Found == 0:
		return &exit{exitBroken, fmt.Errorf("no review in %s has the UID %q", strings.Join(paths, ", "), r.explainUID)}
	case found.Failed > 0:
		return &exit{exitBroken, nil}
	case found.Differing > 0:
		return &exit{exitFailed, nil}
	}
	return nil
}

// readyToReplay returns the options of reviews with all plugins, except those that count or write. leftOut
// are the names of these.
func (r *reviewOptions) readyToReplay(ctx context.Context) (o *review.Options, leftOut []string, err error) {
	names := r.leaveOut(false)
	if o, err = r.prepared(); err != nil {
		return nil, nil, err
	}
	state, err := r.readPolicies(nil)
	if err != nil {
		return nil, nil, err
	}
	if err := r.prepare(ctx, o); err != nil {
		return nil, nil, err
	}
	o.DryRun = o.DryRun || r.allowCalls
	return o, *names, failed(r.cluster.put(state))
}

// replayNotes describe what differs from the time of the recording.
func (r *replayOptions) replayNotes(o *replay.Options) (notes []string) {
	if len(o.LeftOut) > 0 {
		notes = append(notes, fmt.Sprintf("plugins that count or write are left out, and reviews that they denied are skipped: %s", strings.Join(o.LeftOut, ", ")))
	}
	var looks []string
	for _, p := range o.Chain.Plugins() {
		if len(p.Needs) > 0 {
			looks = append(looks, p.Name)
		}
	}
	if len(looks) > 0 {
		from := "a new cluster, in which every namespace exists"
		switch {
		case r.cluster.kubeconfig != "":
			from = "the cluster as it is now"
		case r.cluster.dir != "":
			from = "the objects of " + r.cluster.dir
		}
		notes = append(notes, fmt.Sprintf("plugins that look at the cluster see %s, not that at the time of the recording: %s", from, strings.Join(looks, ", ")))
	}
	return notes
}

// replayProgress shows the number of repeated reviews on a terminal.
func replayProgress(terminal io.Writer) func(int64) {
	if terminal == nil {
		return nil
	}
	var mu sync.Mutex
	start, last := time.Now(), time.Time{}
	return func(reviews int64) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if now.Sub(last) >= progressEvery {
			last = now
			fmt.Fprintf(terminal, clearLine+"%d reviews, %.0f a second", reviews, float64(reviews)/now.Sub(start).Seconds())
		}
	}
}
