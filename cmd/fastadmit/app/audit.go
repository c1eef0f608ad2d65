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
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/offline/audit"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/fastadmit/fastadmit/internal/registration"
)

const (
	// auditUserAgent is the name of an audit in kube-apiserver's logs and metrics.
	auditUserAgent = "fastadmit-audit"

	// auditQPS is the default limit on an audit's requests to the API server: less
	// than half of a server's, whose lookups answer users. 50,000 objects are 100
	// pages.
	auditQPS = 20
)

type auditOptions struct {
	reviewOptions
	namespaces   []string
	all          bool
	workloadPods bool
	trustOwners  bool
	chunkSize    int64
	qps          float32
	writeReports string
	metricsFile  string
	exitZero     bool
}

// anyReports is the value of --write-reports without one.
const anyReports = "auto"

// An auditRun handles the results of one audit.
type auditRun struct {
	*auditOptions
	ctx      context.Context
	out      *bufio.Writer
	writer   report.Writer
	terminal io.Writer      // where progress is shown; nil for nowhere
	reports  *audit.Reports // nil if none are written
	metrics  *auditMetrics
	summary  report.Summary
	isPart   bool // some objects could not be listed
}

func newAuditCommand(o *options) *cobra.Command {
	a := &auditOptions{reviewOptions: reviewOptions{selection: selection{options: o}}}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Review the objects of a cluster: what would the enabled plugins deny?",
		Long: `Lists the objects that the enabled plugins select, and reviews each as if it were created now, or
updated with --operation=UPDATE. All reviews are dry runs, and nothing is changed, except by
--write-reports. The audit skips the objects for which kube-apiserver would not call fastadmit: those in
kube-system, kube-node-lease and fastadmit's own namespace, and those that the section registration of
--config excludes. It leaves out plugins that count or write (ResourceQuota, EventRateLimit,
NamespaceLifecycle, NamespaceAutoProvision), because they do not decide by the object.

Prints denials and warnings, and a summary of all objects.

Exits with 0 if no object would be denied, 1 if one would, 2 if objects could not be listed or
reviewed, or if the command is wrong.`,
		Example: "  fastadmit audit --config=fastadmit.yaml\n" +
			"  fastadmit audit --pod-security=restricted\n" +
			"  fastadmit audit --context=production --enable-admission-plugins=PodSecurity -n shop -o json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return broken(a.run(cmd))
		},
	}
	a.addAuditFlags(cmd)
	return cmd
}

func (a *auditOptions) addAuditFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	a.addFlags(cmd)
	a.useKubeconfig("kubeconfig file for the cluster; if empty, as kubectl finds it: the files of the variable KUBECONFIG, ~/.kube/config, or the cluster of the pod",
		unusedCluster)
	flags.StringVar(&a.cluster.context, "context", "", "context of the kubeconfig; if empty, the current one")
	a.user.Username, a.user.Groups = "system:admin", []string{"system:masters"}
	a.addSharedFlags(cmd)
	a.addPodSecurityFlag(cmd)
	flags.Lookup("as").Usage = "user who sends the objects that kube-controller-manager does not create. The default has all permissions"
	flags.StringVar(&a.operation, "operation", string(codec.Create), "CREATE: would the object be denied if it were created now? UPDATE: would an update without changes be denied?")
	flags.StringSliceVarP(&a.namespaces, "namespace", "n", nil, "namespaces to review, and nothing else; if not set, all objects")
	flags.BoolVar(&a.all, "all", false, "also print objects that are allowed without a patch or warning")
	flags.BoolVar(&a.workloadPods, "workload-pods", false,
		"also review the objects that controllers would create from workloads, as review does; most of their pods exist already")
	flags.BoolVar(&a.trustOwners, "trust-owner-references", false,
		"review objects that controllers own as the controller only; whoever may create an object may write its ownerReferences")
	flags.Int64Var(&a.chunkSize, "chunk-size", audit.DefaultPageSize, "number of objects to list in one request")
	flags.Float32Var(&a.qps, "kube-api-qps", auditQPS, "maximum of requests a second to the API server, without the lookups of plugins")
	flags.StringVar(&a.writeReports, "write-reports", "",
		"write the findings of each object as a report, and remove reports of earlier audits: "+strings.Join(audit.ReportAPIs(), " or ")+
			"; without a value, the first that the cluster has")
	flags.Lookup("write-reports").NoOptDefVal = anyReports
	flags.BoolVar(&a.exitZero, "exit-zero", false, "exit with 0 even if objects would be denied, and with 2 if the audit could not finish")
	flags.StringVar(&a.metricsFile, "metrics-file", "", "file for metrics of the audit, in the Prometheus text format")
	completeValues(cmd, "operation", string(codec.Create), string(codec.Update))
	completeValues(cmd, "write-reports", audit.ReportAPIs()...)
}

// check returns the errors in the flags.
func (a *auditOptions) check() error {
	switch operation := codec.Operation(strings.ToUpper(a.operation)); {
	case operation != codec.Create && operation != codec.Update:
		return fmt.Errorf("--operation: got %q, want CREATE or UPDATE", a.operation)
	case a.cluster.dir != "":
		return errors.New("--cluster-state-dir cannot be used with audit, which lists the objects of a cluster; use fastadmit review for folders")
	case a.chunkSize < 1:
		return fmt.Errorf("--chunk-size: got %d, want at least 1", a.chunkSize)
	case a.qps <= 0:
		return fmt.Errorf("--kube-api-qps: got %v, want more than 0", a.qps)
	case a.writeReports != "" && a.writeReports != anyReports && !slices.Contains(audit.ReportAPIs(), a.writeReports):
		return fmt.Errorf("--write-reports: got %q, want %s", a.writeReports, strings.Join(audit.ReportAPIs(), " or "))
	}
	if a.flags.Changed("as") && !a.flags.Changed("as-group") {
		a.user.Groups = nil // those of the default user
	}
	return nil
}

func (a *auditOptions) run(cmd *cobra.Command) error {
	memory.SetLimit(os.ReadFile)
	if err := a.check(); err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	writer, err := report.New(a.output, out, a.reportOptions("fastadmit audit", cmd.OutOrStdout()))
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if err := a.cluster.findKubeconfig(); err != nil {
		return err
	}
	o, err := a.prepared(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	run := &auditRun{
		auditOptions: a, ctx: cmd.Context(), out: out, writer: writer, terminal: terminalOf(cmd.ErrOrStderr()), metrics: newAuditMetrics(),
	}
	run.summary.EmulatedVersion, run.summary.Unused = a.emulated.current().String(), a.unused
	if a.writeReports != "" {
		if run.reports, err = audit.NewReports(cmd.Context(), o.Config, strings.TrimSuffix(a.writeReports, anyReports), a.namespaces); err != nil {
			return failed(err)
		}
	}
	o.Progress = auditProgress(run.terminal)
	err = audit.Run(cmd.Context(), *o, run.emit)
	if exceptions := o.Review.Chain.Exceptions(); exceptions != nil {
		run.summary.Exceptions = exceptions.List()
	}
	if run.terminal != nil {
		fmt.Fprint(run.terminal, clearLine)
	}
	if err == nil {
		err = run.end()
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return failed(err)
	}
	a.noteDoubts(cmd.ErrOrStderr(), &run.summary)
	return a.verdict(&run.summary)
}

// emit takes a result.
func (r *auditRun) emit(result *report.Result) error {
	r.summary.Add(result)
	r.metrics.add(result)
	r.isPart = r.isPart || result.Decision == report.Broken && result.UID == ""
	if r.reports != nil {
		if err := r.reports.Write(r.ctx, result); err != nil {
			return err
		}
	}
	if !r.all && !result.IsNews() {
		return nil
	}
	if r.terminal == nil {
		return r.writer.Write(result)
	}
	fmt.Fprint(r.terminal, clearLine)
	return errors.Join(r.writer.Write(result), r.out.Flush()) // so that progress begins on its own line
}

// end completes the output. If some objects could not be listed, old reports stay:
// they may be about these objects.
func (r *auditRun) end() error {
	err := r.writer.Close(&r.summary)
	if r.reports != nil && !r.isPart {
		_, removed := r.reports.RemoveOld(r.ctx)
		err = errors.Join(err, removed)
	}
	if r.metricsFile != "" {
		err = errors.Join(err, r.metrics.write(r.metricsFile, &r.summary))
	}
	return err
}

// verdict returns the error that ends the command.
func (a *auditOptions) verdict(s *report.Summary) error {
	switch {
	case s.Broken+s.Failed > 0:
		return &exit{exitBroken, nil}
	case a.exitZero:
		return nil
	case s.Denied > 0, s.Warnings > 0 && a.warningsAsErrors:
		return &exit{exitDenied, nil}
	}
	return nil
}

// progressEvery is how often the line of progress changes.
const progressEvery = 200 * time.Millisecond

// auditProgress shows the progress of the audit on a terminal.
func auditProgress(terminal io.Writer) func(audit.Progress) {
	if terminal == nil {
		return nil
	}
	var last time.Time
	return func(p audit.Progress) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		of := ""
		if p.Remaining > 0 {
			of = fmt.Sprintf(", some %d to go", p.Remaining)
		}
		fmt.Fprintf(terminal, clearLine+"%s: %d reviewed%s", printable.Word(p.Resource), p.Reviewed, of)
	}
}

// prepared makes the plugins and what they see of the cluster ready.
func (a *auditOptions) prepared(ctx context.Context, stderr io.Writer) (*audit.Options, error) {
	a.noPods, a.inCluster = !a.workloadPods, true
	reviewed, err := a.reviewOptions.prepared()
	if err != nil {
		return nil, err
	}
	a.cluster.userAgent = auditUserAgent
	leftOut := a.leaveOut(true)
	state, err := a.readPolicies(nil)
	if err != nil {
		return nil, err
	}
	loaded, err := a.load(ctx, nil)
	for _, name := range *leftOut {
		fmt.Fprintf(stderr, "fastadmit: %s is left out: it counts or writes, and does not decide by the object alone\n", name)
	}
	if err != nil {
		return nil, err
	}
	a.notePolicies(ctx, stderr, loaded.chain)
	reviewed.TrustOwners = a.trustOwners
	o, err := a.auditing(ctx, &loaded, reviewed, state, a.qps)
	if err != nil {
		return nil, err
	}
	o.Namespaces, o.PageSize = a.namespaces, a.chunkSize
	return o, nil
}

// auditing returns the options for reviews of the objects of the cluster, with at most qps requests a second,
// when plugins see the cluster and the objects in state.
func (r *reviewOptions) auditing(ctx context.Context, loaded *selected, reviewed *review.Options, state []manifest.Item, qps float32,
) (*audit.Options, error) {
	registered, err := loaded.register(&loaded.Registration)
	if err != nil {
		return nil, err
	}
	if err := r.cluster.follow(ctx, []cluster.Need{cluster.Namespaces.Watched()}, []string{"audit"}); err != nil {
		return nil, failed(err)
	}
	config, err := cluster.RESTConfig(r.cluster.kubeconfig, r.cluster.context)
	if err != nil {
		return nil, failed(err)
	}
	config.UserAgent, config.QPS, config.Burst = r.cluster.userAgent, qps, max(1, int(qps))
	if err := audit.Ask(ctx, config); err != nil {
		return nil, failed(err)
	}
	reviewed.Chain, reviewed.Release, reviewed.DryRun = loaded.chain, r.emulated.current(), true
	return &audit.Options{
		Review: *reviewed, Config: config, Webhooks: webhooksOf(registered), NamespaceLabels: &r.cluster.namespaces,
		PageSize: audit.DefaultPageSize,
	}, failed(errors.Join(r.cluster.await(ctx), r.cluster.put(state)))
}

// webhooksOf returns the webhooks that kube-apiserver calls. Of a mutating webhook
// it returns the fields that validating ones have too.
func webhooksOf(r *registration.Registration) (all []admissionregistrationv1.ValidatingWebhook) {
	if r.Mutating != nil {
		for i := range r.Mutating.Webhooks {
			w := &r.Mutating.Webhooks[i]
			all = append(all, admissionregistrationv1.ValidatingWebhook{
				Name: w.Name, Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			})
		}
	}
	if r.Validating != nil {
		all = append(all, r.Validating.Webhooks...)
	}
	return all
}
