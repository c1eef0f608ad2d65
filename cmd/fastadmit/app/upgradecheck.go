package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/offline/audit"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/replay"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
)

// upgradeCheckAgent is the name of an upgrade check in kube-apiserver's logs and metrics.
const upgradeCheckAgent = "fastadmit-upgrade-check"

// An upgradeCheck reviews objects with the plugins of two releases.
type upgradeCheck struct {
	reviewOptions // for the newer release
	from, to      string
	qps           float32
	before        *reviewOptions // for the release that is used now
}

func newUpgradeCheckCommand(o *options) *cobra.Command {
	u := &upgradeCheck{reviewOptions: reviewOptions{selection: selection{options: o}}}
	cmd := &cobra.Command{
		Use:   "upgrade-check --from VERSION --to VERSION [FILE|FOLDER|-]...",
		Short: "Compare two releases of Kubernetes: which decisions would an upgrade change?",
		Long: `Reviews objects twice, with the enabled plugins and policies as in two releases of Kubernetes, and prints
where the decision, the messages, the warnings or the stored object differ. The objects are those in the
files, as review reads them, or without files those of the cluster of --kubeconfig, as audit does, which
changes nothing. It also says which plugins come, go, or are switched on, and which expressions cost more.

With --in-tree, the plugins are those that kube-apiserver runs by default in each release, with those of
--enable-admission-plugins, so you need no fastadmit in your cluster. Pass its policies with --policies.

Plugins that count or write (ResourceQuota, EventRateLimit, NamespaceLifecycle, NamespaceAutoProvision) are
left out, as are, with --in-tree, those that call webhooks.

Exits with 0 if all that is allowed stays allowed, 1 if an object would be denied, 2 if an object could
not be reviewed, if one of the releases does not accept the configuration or a policy, or if the command
is wrong.`,
		Example: "  fastadmit upgrade-check --from 1.34 --to 1.36 --kubeconfig=$HOME/.kube/config --config=fastadmit.yaml\n" +
			"  kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings -o yaml > policies.yaml\n" +
			"  fastadmit upgrade-check --from 1.34 --to 1.36 --in-tree --policies=policies.yaml deploy/",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return broken(u.run(cmd, append(u.reviewOptions.files, paths...)))
		},
	}
	flags := cmd.Flags()
	u.addFlags(cmd)
	u.useKubeconfig("kubeconfig file of a cluster whose objects plugins see, and without files, whose objects are reviewed; it is only read",
		"folder with objects in YAML or JSON that plugins see; without it and --kubeconfig, they see a new cluster")
	flags.StringVar(&u.from, "from", "", "minor release of Kubernetes that is used now, as 1.34")
	flags.StringVar(&u.to, "to", "", "minor release of Kubernetes to compare with, as 1.36")
	flags.BoolVar(&u.defaults, "in-tree", false, "also enable the plugins that kube-apiserver runs by default in each release, except those that call webhooks")
	flags.StringSliceVarP(&u.reviewOptions.files, "filename", "f", nil, "file or folder to review, - for standard input; same as an argument")
	completeFiles(cmd, "filename", manifestExtensions()...)
	flags.StringVar(&u.operation, "operation", string(codec.Create), "operation: CREATE, or UPDATE without a change")
	flags.StringVarP(&u.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of objects in files without one")
	flags.Float32Var(&u.qps, "kube-api-qps", auditQPS, "maximum of requests a second to the API server, without the lookups of plugins")
	u.addPodSecurityFlag(cmd)
	u.addSkipFlag(flags)
	u.addComparisonFlags(cmd)
	// The two releases are the versions that are emulated.
	if err := errors.Join(flags.MarkHidden("emulated-version"), cmd.MarkFlagRequired("from"), cmd.MarkFlagRequired("to")); err != nil {
		panic(err) // a flag has another name
	}
	completeValues(cmd, "operation", string(codec.Create), string(codec.Update))
	for _, flag := range []string{"from", "to"} {
		completeValues(cmd, flag, admission.Versions()...)
	}
	return cmd
}

// minorVersion is the minor release at the beginning of a version, as v1.34, v1.34.2 or 1.34.2-eks-1a2b3c.
var minorVersion = regexp.MustCompile(`^v?(1\.\d+)(?:\.\d+(?:[-+].*)?)?$`)

// check returns the errors in the flags, and sets those of the other release.
func (u *upgradeCheck) check(paths []string) error {
	for i, flag := range []*string{&u.from, &u.to} {
		given := *flag
		*flag = minorVersion.ReplaceAllString(given, "$1") // as kubectl version prints it
		if _, known, err := admission.ParseVersion(*flag); err != nil || !known {
			return fmt.Errorf("--%s: got %q, want one of %s", [...]string{"from", "to"}[i], given, strings.Join(admission.Versions(), ", "))
		}
	}
	switch operation := codec.Operation(strings.ToUpper(u.operation)); {
	case u.flags.Changed("emulated-version"):
		return errors.New("--emulated-version cannot be used with upgrade-check: --from and --to name the versions")
	case u.from == u.to:
		return fmt.Errorf("--from and --to are both %s", u.from)
	case operation != codec.Create && operation != codec.Update:
		return fmt.Errorf("--operation: got %q, want CREATE or UPDATE", u.operation)
	case !slices.Contains(replayFormats, u.output):
		return fmt.Errorf("--output: got %q, want one of %s", u.output, strings.Join(replayFormats, ", "))
	case u.qps <= 0:
		return fmt.Errorf("--kube-api-qps: got %v, want more than 0", u.qps)
	case len(paths) == 0 && u.cluster.kubeconfig == "":
		return errors.New("name files or folders with objects, - for standard input, or --kubeconfig for those of a cluster")
	}
	return nil
}

func (u *upgradeCheck) run(cmd *cobra.Command, paths []string) error {
	memory.SetLimit(os.ReadFile)
	if err := u.check(paths); err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	writer, err := report.New(u.output, out, u.reportOptions("fastadmit upgrade-check", cmd.OutOrStdout()))
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	u.emulated.flag = u.to
	u.before = u.twin()
	u.before.enable, u.before.disable, u.before.admissionFile, u.before.configFile = u.enable, u.disable, u.admissionFile, u.configFile
	u.before.defaults, u.before.podSecurity, u.before.policyFiles = u.defaults, u.podSecurity, u.policyFiles
	u.before.operation, u.before.user, u.before.extra, u.before.skipUnknown = u.operation, u.user, u.extra, u.skipUnknown
	u.before.emulated.flag = u.from
	compared := replay.NewComparison()
	summary := report.Summary{EmulatedVersion: u.to}
	add := func(result *report.Result) {
		summary.Objects++
		if result.IsUnchecked() && result.Against.IsUnchecked() {
			summary.Unchecked++
		}
		compared.Add(result)
	}
	var notes []string
	if len(paths) > 0 {
		notes, err = u.files(cmd, paths, add)
	} else {
		notes, err = u.objects(cmd, add)
	}
	if err != nil {
		return err
	}
	if summary.Unchecked > 0 {
		notes = append(notes, fmt.Sprintf("in both releases, no enabled plugin checks %d of %s",
			summary.Unchecked, report.Counted(summary.Objects, "object")))
	}
	summary.Replay, err = compared.Finish(writer.Write)
	if err == nil {
		summary.Replay.From, summary.Replay.To = u.from, u.to
		summary.Replay.Notes = append(notes, summary.Replay.Notes...)
		err = writer.Close(&summary)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return failed(err)
	}
	switch counted := summary.Replay; {
	case counted.NotAsked > 0:
		return &exit{exitBroken, nil}
	case counted.Reviews == counted.Skipped:
		return &exit{exitBroken, errors.New("there is nothing to review")}
	case counted.Worse > 0:
		return &exit{exitFailed, nil}
	}
	return nil
}

// files reviews the objects in files, and calls add with each result and its Against.
func (u *upgradeCheck) files(cmd *cobra.Command, paths []string, add func(*report.Result)) (notes []string, err error) {
	stdin := cmd.InOrStdin()
	items := manifest.Read(paths, stdin, u.trees())
	leftOut := u.leaveOut(false)
	u.before.leaveOut(false)
	before, _, err := u.before.reviewAll(cmd.Context(), items)
	if err != nil {
		return nil, of("--from="+u.from, err)
	}
	after, chain, err := u.reviewAll(cmd.Context(), items)
	if err != nil {
		return nil, of("--to="+u.to, err)
	}
	u.notePolicies(cmd.Context(), cmd.ErrOrStderr(), chain)
	if len(before) != len(after) {
		return nil, failed(fmt.Errorf("got %d results as Kubernetes %s and %d as %s", len(before), u.from, len(after), u.to))
	}
	for i, result := range after {
		result.Against = before[i]
		add(result)
	}
	return u.notes(chain, *leftOut), nil
}

// reviewAll reviews the objects in files.
func (r *reviewOptions) reviewAll(ctx context.Context, items []manifest.Item) (all []*report.Result, chain *admission.Chain, err error) {
	o, err := r.prepared()
	if err != nil {
		return nil, nil, err
	}
	o.KeepObjects = true
	if o.State, err = r.readPolicies(items); err != nil {
		return nil, nil, err
	}
	if err := r.prepare(ctx, o); err != nil {
		return nil, nil, err
	}
	err = review.Run(ctx, *o, items, func(result *report.Result) error {
		all = append(all, result)
		return nil
	})
	return all, o.Chain, failed(err)
}

// objects does the same with the objects of a cluster.
func (u *upgradeCheck) objects(cmd *cobra.Command, add func(*report.Result)) (notes []string, err error) {
	leftOut := u.leaveOut(false)
	u.before.leaveOut(false)
	before, err := u.before.auditable(cmd.Context(), u.qps)
	if err != nil {
		return nil, of("--from="+u.from, err)
	}
	o, err := u.auditable(cmd.Context(), u.qps)
	if err != nil {
		return nil, of("--to="+u.to, err)
	}
	u.notePolicies(cmd.Context(), cmd.ErrOrStderr(), o.Review.Chain)
	o.Against = &before.Review
	o.Webhooks = append(o.Webhooks, before.Webhooks...)
	if u.defaults { // kube-apiserver's plugins see all namespaces
		for i := range o.Webhooks {
			o.Webhooks[i].NamespaceSelector, o.Webhooks[i].ObjectSelector = nil, nil
		}
	}
	terminal := terminalOf(cmd.ErrOrStderr())
	o.Progress = auditProgress(terminal)
	err = audit.Run(cmd.Context(), *o, func(result *report.Result) error {
		add(result)
		return nil
	})
	if terminal != nil {
		fmt.Fprint(terminal, clearLine)
	}
	return u.notes(o.Review.Chain, *leftOut), failed(err)
}

// auditable prepares the plugins for the objects of a cluster.
func (r *reviewOptions) auditable(ctx context.Context, qps float32) (*audit.Options, error) {
	r.cluster.userAgent, r.noPods = upgradeCheckAgent, true
	o, err := r.prepared()
	if err != nil {
		return nil, err
	}
	o.KeepObjects, o.TrustOwners = true, true // both releases have the same user
	state, err := r.readPolicies(nil)
	if err != nil {
		return nil, err
	}
	loaded, err := r.load(ctx, nil)
	if err != nil {
		return nil, err
	}
	return r.auditing(ctx, &loaded, o, state, qps)
}

// notes describe what an upgrade changes whatever the objects are.
func (u *upgradeCheck) notes(chain *admission.Chain, leftOut []string) (notes []string) {
	from, to := u.before.options.table(), u.options.table()
	for i := range to {
		p := &to[i]
		if p.OutOfTree {
			continue
		}
		enabled := slices.ContainsFunc(chain.Plugins(), func(other *admission.Plugin) bool { return other.Name == p.Name })
		notes = append(notes, u.pluginNotes(&from[i], p, enabled)...)
	}
	notes = append(notes, u.policies.Costlier(u.before.emulated.current(), u.emulated.current())...)
	if len(leftOut) > 0 {
		notes = append(notes, "plugins that count or write are left out: "+strings.Join(leftOut, ", "))
	}
	return notes
}

// pluginNotes describe whether both releases have a plugin and run it by default.
func (u *upgradeCheck) pluginNotes(from, to *admission.Plugin, enabled bool) (notes []string) {
	had, has := from.IsIn(u.before.emulated.current()), to.IsIn(u.emulated.current())
	switch {
	case has && !had && to.OnByDefault:
		notes = append(notes, fmt.Sprintf("kube-apiserver %s has the plugin %s, and runs it by default", u.to, to.Name))
	case has && !had:
		notes = append(notes, fmt.Sprintf("kube-apiserver %s has the plugin %s", u.to, to.Name))
	case had && !has:
		text := fmt.Sprintf("kube-apiserver %s does not have the plugin %s any more", u.to, to.Name)
		if enabled {
			text += "; fastadmit runs it because it is enabled"
		}
		notes = append(notes, text)
	case has && to.OnByDefault && !from.OnByDefault:
		notes = append(notes, fmt.Sprintf("kube-apiserver %s runs the plugin %s by default", u.to, to.Name))
	case has && !to.OnByDefault && from.OnByDefault:
		notes = append(notes, fmt.Sprintf("kube-apiserver %s does not run the plugin %s by default any more", u.to, to.Name))
	}
	return notes
}
