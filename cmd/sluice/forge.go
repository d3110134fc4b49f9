package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	forgeTimeout = 30 * time.Second // of one request
	forgeTries   = 4
	forgePause   = 500 * time.Millisecond // before the second try; doubled each time
	forgeLimit   = 8 << 20                // bytes of an answer
	forgePage    = 100                    // comments; Gitea gives 50 at most
)

// forgeKind is how one kind of forge is spoken to. In paths, {repo} is the
// repository, {pull} the pull request's number, {comment} a comment's id and
// {commit} a hash. Source: the REST reference of each, GitHub 2022-11-28, GitLab
// v4, Gitea v1.
type forgeKind struct {
	comments, comment, statuses string
	edit                        string // the method that replaces a comment
	header, prefix              string // of the token
	page                        string // the parameter for the size of a page
	state, context              string // parameters of a status
	states                      map[string]string
	description                 int // characters of one
}

var forgeKinds = map[string]forgeKind{
	"github": {
		comments: "/repos/{repo}/issues/{pull}/comments", comment: "/repos/{repo}/issues/comments/{comment}",
		statuses: "/repos/{repo}/statuses/{commit}", edit: http.MethodPatch, header: "Authorization", prefix: "Bearer ",
		page: "per_page", state: "state", context: "context", description: 140,
	},
	"gitea": {
		comments: "/repos/{repo}/issues/{pull}/comments", comment: "/repos/{repo}/issues/comments/{comment}",
		statuses: "/repos/{repo}/statuses/{commit}", edit: http.MethodPatch, header: "Authorization", prefix: "token ",
		page: "limit", state: "state", context: "context", description: 255,
	},
	"gitlab": {
		comments: "/projects/{repo}/merge_requests/{pull}/notes", comment: "/projects/{repo}/merge_requests/{pull}/notes/{comment}",
		statuses: "/projects/{repo}/statuses/{commit}", edit: http.MethodPut, header: "PRIVATE-TOKEN",
		page: "per_page", state: "state", context: "name", description: 255,
		states: map[string]string{"failure": "failed", "error": "failed"},
	},
}

// forge is one repository on a forge.
type forge struct {
	forgeKind
	api, repo, token string
	client           http.Client
}

func newForge(kind, api, repo, token string) (*forge, error) {
	u, err := url.Parse(api)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, &exitError{1, fmt.Sprintf("--api %q: want the URL of the forge's API, such as https://api.github.com", api)}
	}
	f := &forge{forgeKind: forgeKinds[kind], api: strings.TrimRight(api, "/"), repo: repo, token: token}
	if kind == "gitlab" {
		f.repo = url.PathEscape(repo) // GitLab takes a path for a number
	}
	f.client.Timeout = forgeTimeout
	return f, nil
}

func (f *forge) path(pattern string, pull int, comment int64, commit string) string {
	return f.api + strings.NewReplacer("{repo}", f.repo, "{pull}", strconv.Itoa(pull),
		"{comment}", strconv.FormatInt(comment, 10), "{commit}", url.PathEscape(commit)).Replace(pattern)
}

// say writes a comment, or writes over the oldest one that begins with marker.
func (f *forge) say(ctx context.Context, pull int, marker, body string) error {
	id, err := f.find(ctx, pull, marker)
	if err != nil {
		return fmt.Errorf("cannot read the comments of pull request %d: %w", pull, err)
	}
	method, to := http.MethodPost, f.path(f.comments, pull, 0, "")
	if id != 0 {
		method, to = f.edit, f.path(f.comment, pull, id, "")
	}
	if err := f.do(ctx, method, to, map[string]string{"body": body}, nil); err != nil {
		return fmt.Errorf("cannot write a comment on pull request %d: %w", pull, err)
	}
	return nil
}

// find is the id of the oldest comment that begins with marker, or 0.
func (f *forge) find(ctx context.Context, pull int, marker string) (int64, error) {
	type comment struct {
		ID   int64  `json:"id"`
		Body string `json:"body"`
	}
	seen := map[int64]bool{}
	oldest := int64(0)
	for page := 1; ; page++ {
		var all []comment
		q := url.Values{f.page: {strconv.Itoa(forgePage)}, "page": {strconv.Itoa(page)}}
		if err := f.do(ctx, http.MethodGet, f.path(f.comments, pull, 0, "")+"?"+q.Encode(), nil, &all); err != nil {
			return 0, err
		}
		fresh := false // a server may know no pages, and give all each time
		for _, c := range all {
			fresh = fresh || !seen[c.ID]
			seen[c.ID] = true
			text := strings.ReplaceAll(c.Body, "\r\n", "\n")
			if strings.HasPrefix(text, marker) && (oldest == 0 || c.ID < oldest) {
				oldest = c.ID
			}
		}
		if !fresh {
			return oldest, nil
		}
	}
}

// mark sets a commit's status.
func (f *forge) mark(ctx context.Context, commit, name, state, words, link string) error {
	if s, ok := f.states[state]; ok {
		state = s
	}
	if r := []rune(words); len(r) > f.description {
		words = string(r[:f.description-1]) + "…"
	}
	body := map[string]string{f.state: state, f.context: name, "description": words}
	if link != "" {
		body["target_url"] = link
	}
	if err := f.do(ctx, http.MethodPost, f.path(f.statuses, 0, 0, commit), body, nil); err != nil {
		return fmt.Errorf("cannot set the status of commit %s: %w", short(commit), err)
	}
	return nil
}

// tryAgain says that a request may succeed later.
type tryAgain struct{ error }

func (e tryAgain) Unwrap() error { return e.error }

// do makes a request, again if the forge is busy. in and out are JSON.
func (f *forge) do(ctx context.Context, method, to string, in, out any) error {
	for try, pause := 1, forgePause; ; try, pause = try+1, pause*2 {
		err := f.once(ctx, method, to, in, out)
		var again tryAgain
		if !errors.As(err, &again) || try == forgeTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (f *forge) once(ctx context.Context, method, to string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set(f.header, f.prefix+f.token)
	res, err := f.client.Do(req)
	if err != nil {
		return tryAgain{err}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, forgeLimit))
	if err != nil {
		return tryAgain{err}
	}
	switch code := res.StatusCode; {
	case code == http.StatusTooManyRequests || code >= 500:
		return tryAgain{fmt.Errorf("%s answers %s", req.URL.Host, res.Status)}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fmt.Errorf("%s answers %s: the token must be allowed to write comments and commit statuses", req.URL.Host, res.Status)
	case code == http.StatusNotFound:
		return fmt.Errorf("%s answers %s: check --repo and --pull, and that the token may see them", req.URL.Host, res.Status)
	case code/100 != 2:
		return fmt.Errorf("%s answers %s: %s", req.URL.Host, res.Status, oneLine(string(data[:min(len(data), 200)])))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("cannot read the answer of %s: %w", req.URL.Host, err)
	}
	return nil
}
