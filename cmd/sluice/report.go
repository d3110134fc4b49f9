package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// tokenVariables hold a forge's token; it is never a flag, which others can see.
var tokenVariables = []string{"SLUICE_FORGE_TOKEN", "GITHUB_TOKEN", "GITEA_TOKEN", "GITLAB_TOKEN"}

// reportRun is one run of the command.
type reportRun struct {
	*app
	forge, api, repo, commit, link string
	pull                           int
	name, comment, state, words    string
}

func newReportCommand(a *app) *cobra.Command {
	r := reportRun{app: a}
	ci := readCI(os.Getenv)
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a comment and a commit status to a pull request",
		Long: `Write to a pull request on GitHub, GitLab or Gitea: a comment, in place of the one
that an earlier run wrote, and a status of its commit.

The comment is a file that begins with the line ` + planMarker + `, as what
sluice plan -o markdown prints; - is stdin. Where it goes is taken from the
variables of GitHub Actions, GitLab CI and Gitea Actions. The token is that in
` + strings.Join(tokenVariables, ", ") + `.`,
		Example: `  sluice report --comment plan.md
  sluice report --state success --description "2 resources to add, in 3 stages"`,
		Args: none,
	}
	f := cmd.Flags()
	kind := &choice{ci.forge, []string{"github", "gitlab", "gitea"}}
	f.Var(kind, "forge", "kind of forge: "+strings.Join(kind.all, ", "))
	f.StringVar(&r.api, "api", ci.api, "URL of the forge's API")
	f.StringVar(&r.repo, "repo", ci.repo, "repository: OWNER/NAME, or GitLab's number")
	f.IntVar(&r.pull, "pull", ci.pull, "number of the pull request")
	f.StringVar(&r.commit, "commit", ci.commit, "commit that the status is of")
	f.StringVar(&r.link, "link", ci.link, "page that the status leads to")
	f.StringVar(&r.name, "name", "", "environment, where a repository holds several: each has a comment and a status")
	f.StringVar(&r.comment, "comment", "", "file to write as the comment")
	state := &choice{"", []string{"pending", "success", "failure", "error"}}
	f.Var(state, "state", "status to set: "+strings.Join(state.all, ", "))
	f.StringVar(&r.words, "description", "", "words of the status")
	completeWith(cmd, "forge", kind.all...)
	completeWith(cmd, "state", state.all...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		r.forge, r.state = kind.value, state.value
		f, err := r.open()
		if err != nil {
			return err
		}
		if r.state != "" {
			if err := f.mark(ctx, r.commit, r.status(), r.state, r.words, r.link); err != nil {
				return because(ctx, err)
			}
		}
		if r.comment == "" {
			return nil
		}
		marker, body, err := r.body()
		if err != nil {
			return err
		}
		return because(ctx, f.say(ctx, r.pull, marker, body))
	}
	return cmd
}

// open checks the flags that are needed.
func (r *reportRun) open() (*forge, error) {
	token := ""
	for _, v := range tokenVariables {
		if token == "" {
			token = os.Getenv(v)
		}
	}
	needs := []struct {
		missing bool
		flag    string
	}{
		{r.comment == "" && r.state == "", "--comment or --state"},
		{r.forge == "", "--forge"},
		{r.api == "", "--api"},
		{r.repo == "", "--repo"},
		{r.comment != "" && r.pull <= 0, "--pull"},
		{r.state != "" && r.commit == "", "--commit"},
	}
	var missing []string
	for _, n := range needs {
		if n.missing {
			missing = append(missing, n.flag)
		}
	}
	if token == "" {
		missing = append(missing, "a token in one of the variables "+strings.Join(tokenVariables, ", "))
	}
	if len(missing) > 0 {
		return nil, &exitError{1, fmt.Sprintf("report needs %s; see sluice report --help", strings.Join(missing, "; "))}
	}
	return newForge(r.forge, r.api, r.repo, token)
}

// status is the name of the commit's status.
func (r *reportRun) status() string {
	if r.name == "" {
		return "sluice/plan"
	}
	return "sluice/plan/" + r.name
}

// body reads the comment. Its first lines are what it is found by again.
func (r *reportRun) body() (marker, body string, err error) {
	in := r.in
	if in == nil {
		in = os.Stdin
	}
	var data []byte
	if r.comment == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(r.comment)
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot read the comment %s: %w", r.comment, plainPathError(err))
	}
	rest, ok := strings.CutPrefix(string(data), planMarker+"\n")
	if !ok {
		return "", "", &exitError{1, fmt.Sprintf("cannot use %s as the comment: its first line is not %s", r.comment, planMarker)}
	}
	marker = planMarker + "\n"
	if r.name != "" {
		marker += "<!-- sluice:name " + strings.ReplaceAll(r.name, "--", "- -") + " -->\n"
	} else if strings.HasPrefix(rest, "<!-- sluice:name ") {
		return "", "", &exitError{1, fmt.Sprintf("cannot use %s as the comment: it names an environment; give --name", r.comment)}
	}
	return marker, marker + rest, nil
}

// ciRun is what a CI system says of the run.
type ciRun struct {
	forge, api, repo, commit, link string
	pull                           int
}

// readCI reads the variables of GitHub Actions, Gitea Actions and GitLab CI.
func readCI(env func(string) string) ciRun {
	if env("GITLAB_CI") != "" {
		c := ciRun{
			forge: "gitlab", api: env("CI_API_V4_URL"), repo: env("CI_PROJECT_ID"), link: env("CI_JOB_URL"),
			commit: env("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"), // of a merged result's pipeline
		}
		if c.commit == "" {
			c.commit = env("CI_COMMIT_SHA")
		}
		c.pull, _ = strconv.Atoi(env("CI_MERGE_REQUEST_IID"))
		return c
	}
	if env("GITHUB_ACTIONS") == "" && env("GITEA_ACTIONS") == "" {
		return ciRun{}
	}
	c := ciRun{forge: "github", api: env("GITHUB_API_URL"), repo: env("GITHUB_REPOSITORY"), commit: env("GITHUB_SHA")}
	if env("GITEA_ACTIONS") != "" {
		c.forge = "gitea"
	}
	c.link = fmt.Sprintf("%s/%s/actions/runs/%s", env("GITHUB_SERVER_URL"), c.repo, env("GITHUB_RUN_ID"))
	// The commit that is built is a merge with the base; the pull request's own is
	// in the event.
	var event struct {
		PullRequest struct {
			Number int `json:"number"`
			Head   struct {
				SHA string `json:"sha"`
			} `json:"head"`
		} `json:"pull_request"`
	}
	if data, err := os.ReadFile(env("GITHUB_EVENT_PATH")); err == nil && json.Unmarshal(data, &event) == nil && event.PullRequest.Number > 0 {
		c.pull, c.commit = event.PullRequest.Number, event.PullRequest.Head.SHA
	}
	return c
}
